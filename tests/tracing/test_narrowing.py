"""A traced call runs on fewer channels when the sizes in its arguments shrink with them; the graph stays as traced."""

import ast
import copy
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from networks import CASES, images, make
from torch import Tensor, nn

import ldrf
from ldrf.calibration import network as reading
from ldrf.calibration.network import read_network
from ldrf.channels.walk import follow_channels
from ldrf.inputs import Inputs
from ldrf.tracing.interpreter import folded, run
from ldrf.tracing.lean_run import input_values
from ldrf.tracing.trace import Trace, trace

ROOT = Path(ldrf.__file__).parent
MAKES_NODES = {"tracing/rewrites.py"}  # it rewrites a graph before that becomes a trace, and gives new calls a shape


def is_meta(expression: ast.expr) -> bool:
    return isinstance(expression, ast.Attribute) and expression.attr == "meta"


def writes_meta(line: ast.AST) -> bool:
    """Whether a piece of code changes what an attribute ``meta`` holds."""
    if isinstance(line, ast.Assign | ast.AugAssign | ast.Delete):
        targets = [line.target] if isinstance(line, ast.AugAssign) else line.targets
        return any(is_meta(t) or (isinstance(t, ast.Subscript) and is_meta(t.value)) for t in targets)
    changed = isinstance(line, ast.Call) and isinstance(line.func, ast.Attribute) and line.func
    return bool(changed) and is_meta(changed.value) and changed.attr in ("pop", "update", "setdefault", "clear")


@pytest.mark.slow
def test_no_module_writes_into_the_nodes_of_a_graph():
    files = {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in ROOT.rglob("*.py")}
    assert {name for name, code in files.items() if any(writes_meta(line) for line in ast.walk(code))} == MAKES_NODES


@pytest.mark.parametrize(
    "line", ["n.meta['a'] = 1", "n.meta |= {}", "n.meta.pop('a')", "del n.meta['a']", "n.meta = {}"]
)
def test_a_written_mark_would_be_seen(line: str):
    assert any(writes_meta(part) for part in ast.walk(ast.parse(line)))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_read_network_leaves_its_graph_as_it_was_traced(case, monkeypatch):
    before: dict[str, dict] = {}

    def noted(model: nn.Module, example: Inputs) -> Trace:
        graph = trace(model, example)
        before.update({node.name: copy.copy(node.meta) for node in graph.nodes})
        return graph

    monkeypatch.setattr(reading, "trace", noted)
    network = read_network(make(case.kind), [case.batch(4)], (), ldrf.PruneConfig())
    assert {node.name: node.meta for node in network.trace.nodes} == before


class Shaped(nn.Module):
    """Channels through one call that states their number."""

    def __init__(self, call) -> None:
        super().__init__()
        self.conv, self.call = nn.Conv2d(3, 6, 1), call

    def forward(self, x: Tensor) -> Tensor:
        return self.call(self.conv(x))


def gated(size: int):
    def call(x: Tensor) -> Tensor:
        one, two = x.split(size, 1)
        return one * two.sigmoid()

    return call


def swapped(first: int, second: int):
    def call(x: Tensor) -> Tensor:
        one, two = x.split([first, second], 1)
        return torch.cat([two, one], 1)

    return call


@pytest.mark.parametrize(
    ("call", "slim_call", "kept"),
    [
        (lambda x: x.view(2, 6, 64), lambda x: x.view(2, 3, 64), [0, 2, 5]),
        (lambda x: x.reshape(2, 384), lambda x: x.reshape(2, 128), [1, 4]),
        (lambda x: x[:, :, None].expand(2, 6, 2, 8, 8), lambda x: x[:, :, None].expand(2, 3, 2, 8, 8), [0, 1, 3]),
        (gated(3), gated(2), [0, 2, 3, 5]),  # the same place of both halves goes
        (swapped(2, 4), swapped(1, 2), [0, 2, 4]),  # and of all three pieces that both parts are made of
        (lambda x: x[:, 3:] - x[:, :3], lambda x: x[:, 2:] - x[:, :2], [1, 2, 4, 5]),
        (lambda x: x.split(2, 2)[1], lambda x: x.split(2, 2)[1], [0, 5]),  # along another dimension nothing shrinks
        (
            lambda x: F.layer_norm(x.permute(0, 2, 3, 1), (6,)),
            lambda x: F.layer_norm(x.permute(0, 2, 3, 1), (3,)),
            [0, 1, 5],
        ),
        (lambda x: F.group_norm(x, 3), lambda x: F.group_norm(x, 3), [1, 3, 5]),
    ],
)
def test_a_cut_graph_computes_what_code_for_fewer_channels_computes(call, slim_call, kept):
    torch.manual_seed(0)
    model, inputs = Shaped(call).eval(), Inputs((images(2),), {})
    graph = trace(model, inputs)
    followed, weights = follow_channels(graph).followed, folded(graph, model)
    weight, bias = weights.affine(graph.layers[0].node)
    cut = weights.with_layers({graph.layers[0].node: (weight[kept], bias[kept])})
    values = run(followed, cut, followed.nodes, input_values(followed, inputs))
    expected = slim_call(F.conv2d(inputs.args[0], weight[kept], bias[kept]))
    torch.testing.assert_close(values[followed.outputs[0]], expected)
