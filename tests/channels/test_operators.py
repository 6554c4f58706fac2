"""Operators of one's own: without a row their channels are kept, with one row they are cut like any others."""

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false

from collections.abc import Callable, Iterator

import pytest
import torch
from networks import images, settled
from torch import Tensor, nn

import ldrf
from ldrf.channels import operators as ops
from ldrf.channels.operators import ROWS as BUILT_IN
from ldrf.channels.operators import Operator, register_operator
from ldrf.tracing.operator_table import OPERATORS

FAST = ldrf.PruneConfig(solver="closed-form", chunk=8, multiple=1)


@torch.library.custom_op("ldrftest::scale", mutates_args=())
def scale(x: Tensor, weight: Tensor) -> Tensor:
    """Each channel of a map [b, c, h, w] times a number of its own, with a bend that torch has no name for."""
    return torch.where(x > 0, x, 0.1 * x) * weight[:, None, None]


@scale.register_fake
def _(x: Tensor, weight: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("ldrftest::blend", mutates_args=())
def blend(x: Tensor, y: Tensor) -> Tensor:
    return 0.3 * x + 0.7 * y


@blend.register_fake
def _(x: Tensor, y: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("ldrftest::fold", mutates_args=())
def fold(x: Tensor, sizes: list[int]) -> Tensor:
    """A view by another name, which refuses sizes that do not fit."""
    return x.reshape(sizes).clone()


@fold.register_fake
def _(x: Tensor, sizes: list[int]) -> Tensor:
    return x.new_empty(sizes)


@torch.library.custom_op("ldrftest::channels_last", mutates_args=())
def channels_last(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1).contiguous()


@channels_last.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], x.shape[2], x.shape[3], x.shape[1])


def keep_inputs(ctx, inputs, output) -> None:
    ctx.save_for_backward(*(given for given in inputs if isinstance(given, Tensor)))


def scale_backward(ctx, grad: Tensor) -> tuple[Tensor, Tensor]:
    x, weight = ctx.saved_tensors
    bent, slope = torch.where(x > 0, x, 0.1 * x), torch.where(x > 0, 1.0, 0.1)
    return grad * slope * weight[:, None, None], (grad * bent).sum((0, 2, 3))


def fold_backward(ctx, grad: Tensor) -> tuple[Tensor, None]:
    return grad.reshape(ctx.saved_tensors[0].shape), None


scale.register_autograd(scale_backward, setup_context=keep_inputs)
blend.register_autograd(lambda ctx, grad: (0.3 * grad, 0.7 * grad))
fold.register_autograd(fold_backward, setup_context=keep_inputs)
channels_last.register_autograd(lambda ctx, grad: grad.permute(0, 3, 1, 2))


class Scaled(nn.Module):
    """conv -> scale -> conv."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.fc = nn.Conv2d(3, 10, 3, padding=1), nn.Conv2d(10, 6, 1), nn.Linear(6, 4)
        self.factors = nn.Parameter(torch.rand(10) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.second(torch.ops.ldrftest.scale(self.first(x), self.factors)).mean((2, 3)))


class Blended(nn.Module):
    """Two convs that meet in one operator."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.other = nn.Conv2d(3, 10, 3, padding=1), nn.Conv2d(3, 10, 1)
        self.second, self.fc = nn.Conv2d(10, 6, 1), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.second(torch.ops.ldrftest.blend(self.first(x).relu(), self.other(x))).mean((2, 3)))


class Folded(nn.Module):
    """conv -> a view by another name, that states the number of channels -> linear."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 10, 3, padding=1), nn.Linear(10 * 64, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).relu()
        return self.second(torch.ops.ldrftest.fold(x, [x.shape[0], x.shape[1] * 64]))


class Last(nn.Module):
    """conv -> channels moved to the last dimension -> linear."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 10, 3, padding=1), nn.Linear(10, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.ops.ldrftest.channels_last(self.first(x).relu())).mean((1, 2))


ROWS: dict[str, tuple[type[nn.Module], Operator]] = {
    "ldrftest.scale": (Scaled, Operator(ops.per_channel("weight"))),
    "ldrftest.blend": (Blended, Operator(ops.elementwise)),
    "ldrftest.fold": (Folded, Operator(ops.view, sizes=ops.sizes_in("sizes"), kind="moves")),
    "ldrftest.channels_last": (Last, Operator(ops.reordered(0, 2, 3, 1), kind="moves")),
}


@pytest.fixture(params=ROWS)
def case(request) -> Iterator[tuple[str, Callable[[], nn.Module], Operator]]:
    kind, row = ROWS[request.param]
    torch.manual_seed(0)
    yield request.param, lambda: settled(kind()), row


def test_without_a_row_channels_are_kept_with_a_reason(case):
    name, make, _ = case
    seen = ldrf.inspect(make(), [images(8)], config=FAST)
    assert "first" not in {unit.name for unit in seen.units}
    assert f"'{name}'" in {skip.name: skip.reason for skip in seen.skipped}["first"]


def test_with_one_row_the_unit_is_cut_and_the_slim_model_runs(case):
    name, make, row = case
    model, x = make(), images(32)
    with register_operator(name, row):
        result = ldrf.prune(model, [x], widths={"first": 6}, config=FAST)
    assert result.widths["first"] == 6 and result.model.get_parameter("first.weight").shape[0] == 6
    assert result.model(x).shape == model(x).shape
    assert result.history[0].error <= result.history[0].cut_error


def test_at_full_width_it_is_the_dense_model(case):
    name, make, row = case
    model, x = make(), images(16)
    with register_operator(name, row):
        result = ldrf.prune(model, [x], widths={"first": 10}, config=FAST)
    torch.testing.assert_close(result.model(x), model(x), atol=1e-5, rtol=1e-5)


def test_a_tensor_with_a_number_for_each_channel_is_cut_with_them():
    torch.manual_seed(0)
    with register_operator("ldrftest::scale", ROWS["ldrftest.scale"][1]):
        result = ldrf.prune(settled(Scaled()), [images(16)], widths={"first": 6}, config=FAST)
    assert result.model.factors.shape == (6,)


def test_a_row_is_taken_out_again():
    first, second = Operator(ops.same), Operator(ops.pool)
    registration = register_operator("ldrftest.blend", first)
    with register_operator("ldrftest.blend", second, override=True):
        assert OPERATORS.find("ldrftest.blend") is second
    assert OPERATORS.find("ldrftest.blend") is first
    registration.remove()
    assert OPERATORS.find("ldrftest.blend") is None
    with register_operator("aten.relu", first, override=True):
        assert OPERATORS.find("aten.relu") is first
    assert OPERATORS.find("aten.relu") is BUILT_IN["aten.relu"] and not OPERATORS.registered


@pytest.mark.parametrize(
    ("name", "row", "told"),
    [
        ("relu", Operator(ops.same), "must be like 'mylib.scale'"),
        ("mylib.scale.default", Operator(ops.same), "without its overload"),
        ("mylib.scale", ops.same, "must be an ldrf.Operator"),
        ("aten.relu", Operator(ops.same), "has a row already"),
    ],
)
def test_a_row_that_cannot_be_meant_is_refused(name, row, told):
    with pytest.raises(ldrf.LdrfError, match=told):
        register_operator(name, row)
    assert not OPERATORS.registered


def test_every_row_names_an_operator_of_torch():
    names = {name.removeprefix("aten.") for name in BUILT_IN} - {"getitem"}
    assert not {name for name in names if not hasattr(torch.ops.aten, name)}
