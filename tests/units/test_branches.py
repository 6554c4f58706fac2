"""Branches of sums x + f(x): which there are, what they are made of, and a graph without them."""

import pytest
import torch
from networks import CASES, Bottleneck, Deep, Gated, Heads, Inverted, Residual, Tokens, VitBlock, images, make
from torch import Tensor, nn

from ldrf.calibration.network import read_network
from ldrf.config import PruneConfig
from ldrf.tracing.interpreter import run
from ldrf.tracing.lean_run import input_values
from ldrf.units.branches import left_out, outermost, outside, residual_branches, without

FOUND = {
    Residual: {"block1.conv2": ("block1.conv1",)},
    Inverted: {"project": ("expand",)},
    VitBlock: {"fc2": ("fc1",)},
    Gated: {"down": ("gate",), "back": ("both",)},
    Heads: {"o": ("q",)},
    Bottleneck: {},
}


@pytest.mark.parametrize("case", [c for c in CASES if c.kind in FOUND], ids=str)
def test_branches_and_their_units(network, case):
    net = network(case.kind)
    units = (*net.units, *net.coupled)
    found = residual_branches(net.trace, net.model, units, net.protected)
    assert {branch.name: branch.units for branch in found} == FOUND[case.kind]


@pytest.fixture(scope="module")
def deep():
    return read_network(make(Deep), [images(48)], (), PruneConfig(depth=True))


def test_a_graph_without_a_branch_computes_the_sum_with_the_constant(deep):
    branch = next(b for b in deep.branches if b.name == "one.conv2")
    weights, few = without(deep.dense, (branch,)), deep.example.map(lambda t: t[:4])
    values = run(deep.trace, weights, deep.trace.nodes, input_values(deep.trace, few))
    assert not branch.calls & values.keys(), "nothing of the branch is run"
    model = deep.model
    with torch.no_grad():
        stream = torch.relu(model.stem(few.args[0]))
        x = torch.relu(stream + branch.constant.values.view(1, -1, 1, 1))
        x = model.two(x)
        x = x + model.leave(torch.relu(model.enter(torch.relu(model.norm(x)))))
        wanted = model.fc(torch.relu(model.head(x)).mean((2, 3)))
    torch.testing.assert_close(values[deep.trace.outputs[0]], wanted, rtol=1e-4, atol=1e-5)


def test_a_branch_goes_where_all_its_units_have_no_neurons(deep):
    assert {b.name for b in deep.branches} == {"one.conv2", "two.conv2", "leave"}
    widths = {"one.conv1": 24, "two.conv1": 0, "enter": 4}
    assert [b.name for b in left_out(deep.branches, widths)] == ["two.conv2"]
    stream = deep.coupled[0]
    gone = left_out(deep.branches, widths)
    assert {c.layer.name for c in stream.consumers} - {c.layer.name for c in outside(stream, gone).consumers} == {
        "two.conv1"
    }


class Nested(nn.Module):
    """A branch with a sum inside, which is a branch itself."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.enter = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 12, 1)
        self.inner, self.back, self.leave = nn.Conv2d(12, 16, 1), nn.Conv2d(16, 12, 1), nn.Conv2d(12, 8, 1)
        self.fc = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem(x))
        y = torch.relu(self.enter(x))
        y = y + self.back(torch.relu(self.inner(y)))
        return self.fc((x + self.leave(torch.relu(y))).mean((2, 3)))


def test_a_branch_in_a_branch_goes_with_it():
    net = read_network(make(Nested), [images(16)], (), PruneConfig(depth=True))
    outer, inner = (next(b for b in net.branches if b.name == name) for name in ("leave", "back"))
    assert set(inner.units) < set(outer.units) and outermost((inner, outer)) == (outer,)
    assert left_out(net.branches, dict.fromkeys(outer.units, 0)) == (outer,)
    assert left_out(net.branches, {**dict.fromkeys(outer.units, 4), "inner": 0}) == (inner,)


def test_ignored_layers_keep_their_branch(network):
    net = network(Residual)
    assert not list(residual_branches(net.trace, net.model, net.units, {"block1.bn1"}))


class Odd(nn.Module):
    """Sums that are no branches: one reads something else, one gives a value away, one changes by an activation."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.a, self.b = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 1)
        self.c, self.d, self.e, self.f = (nn.Conv2d(8, 8, 1) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem(x))
        y = torch.relu(x)
        x = y + self.b(torch.relu(self.a(x)))
        inner = torch.relu(self.c(x))
        x = x + self.d(inner) + inner.mean()
        return (x + torch.relu(self.f(torch.relu(self.e(x))))).mean((2, 3))


def test_what_is_no_branch_of_its_own_is_none():
    assert read_network(make(Odd), [images(16)], (), PruneConfig(depth=True)).branches == ()


def test_attention_and_scaled_branches_are_found():
    net = read_network(make(Tokens), [images(16)], (), PruneConfig(depth=True))
    holders = {s.holder: s.items for b in net.branches for s in b.stand_ins if s.holder}
    assert holders["mlp.2.bias"] == 0
    assert holders.get("attention.out_proj.bias", 2) == 2
