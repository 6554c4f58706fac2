"""What the table says of an operator holds for torch's own: moves keep values, linear ones are linear."""

# pyright: reportArgumentType=false

import operator
import subprocess
import sys

import pytest
import torch
from torch import Tensor, fx

from ldrf.channels.operators import ROWS
from ldrf.tracing.operator_table import Operator, kind_of, operator_of

X = torch.arange(1.0, 49.0).view(2, 4, 3, 2)
ARGUMENTS: dict[str, tuple] = {
    "view": ([2, 24],),
    "_unsafe_view": ([2, 24],),
    "reshape": ([8, 6],),
    "expand": ([2, 4, 3, 2],),
    "permute": ([0, 2, 3, 1],),
    "transpose": (1, 2),
    "unsqueeze": (1,),
    "slice": (1, 1, 3),
    "select": (1, 2),
    "split": (2, 1),
    "split_with_sizes": ([1, 3], 1),
    "chunk": (2, 1),
    "unbind": (1,),
    "dropout": (0.5, False),
    "to": (torch.float32,),
    "mean": ([2, 3],),
    "sum": ([2, 3],),
    "adaptive_avg_pool2d": ([1, 1],),
    "_adaptive_avg_pool2d": ([1, 1],),
    "avg_pool2d": ([2, 2],),
    "upsample_nearest2d": ([6, 4],),
    "upsample_bilinear2d": ([6, 4], False),
}


def applied(name: str, x: Tensor) -> list[Tensor]:
    result = getattr(torch.ops.aten, name)(x, *ARGUMENTS.get(name, ()))
    return list(result) if isinstance(result, list | tuple) else [result]


OTHER_RANK = {"t", "avg_pool1d", "avg_pool3d", "adaptive_avg_pool1d"}  # they do not work on maps like X


def names(kind: str) -> list[str]:
    """Operators of one kind, without ``aten.``, that can be tried on X."""
    rows = (name.removeprefix("aten.") for name, row in ROWS.items() if row.kind == kind)
    return sorted(set(rows) - OTHER_RANK - {"getitem"})


@pytest.mark.parametrize("name", names("moves"))
def test_an_operator_that_moves_values_gives_none_but_those_it_got(name: str):
    for part in applied(name, X):
        assert set(part.flatten().tolist()) <= set(X.flatten().tolist())


@pytest.mark.parametrize("name", names("moves") + names("linear"))
def test_a_linear_operator_is_linear_and_treats_channels_alike(name: str):
    assert ROWS[f"aten.{name}"].is_linear
    y = torch.randn(X.shape)
    both = applied(name, 2 * X + 3 * y)
    for part, one, other in zip(both, applied(name, X), applied(name, y), strict=True):
        torch.testing.assert_close(part, 2 * one + 3 * other)


@pytest.mark.parametrize("name", names("activation"))
def test_an_activation_works_on_each_value_by_itself(name: str):
    (whole,) = applied(name, X - 24)
    for index in ((0, 0, 0, 0), (1, 3, 2, 1)):
        torch.testing.assert_close(applied(name, (X - 24)[index])[0], whole[index])
    assert not ROWS[f"aten.{name}"].is_linear


def test_a_call_without_a_row_is_of_no_kind():
    graph = fx.Graph()
    x = graph.placeholder("x")
    known = graph.call_function(torch.ops.aten.relu.default, (x,))
    picked = graph.call_function(operator.getitem, (x, 0))
    strange = graph.call_function(torch.ops.aten.cholesky.default, (x,))
    assert isinstance(operator_of(known), Operator) and operator_of(strange) is None
    assert [kind_of(node) for node in (known, picked, strange)] == ["activation", "moves", "other"]


@pytest.mark.slow
def test_the_rows_are_there_whatever_was_imported_before():
    code = "from ldrf.tracing.operator_table import OPERATORS; print(OPERATORS.find('aten.view').kind)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "moves\n"
