"""Several units on one tensor, coupled widths, heads counted by modules: what is left, against the dense network."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false

import copy

import pytest
import torch
import torch.nn.functional as F
from networks import CASES, Bottleneck, Case, Dense, images, make, settled
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import ldrf
from ldrf.calibration.network import read_network
from ldrf.inputs import read_inputs
from ldrf.tracing.interpreter import run
from ldrf.tracing.lean_run import input_values
from ldrf.units.indices import as_it_stands, covering, cut_weights, least_width, surviving
from ldrf.units.module_surgery import cut_plainly

FAST = ldrf.PruneConfig(solver="closed-form", energy=0.2, multiple=1)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_cut_graph_computes_what_the_cut_model_computes(network, case: Case):
    net = network(case.kind)
    kept = {u.name: torch.arange(1, u.width) for u in net.units}
    slim = copy.deepcopy(net.model)
    cut_plainly(slim, net.units, kept)
    inputs = read_inputs(slim, case.batch(3))
    with torch.no_grad():
        weights = cut_weights(net.trace, net.units, net.dense, kept)
        values = run(net.trace, weights, net.trace.nodes, input_values(net.trace, inputs))
        found = [t for t in tree_leaves(inputs.call(slim)) if isinstance(t, Tensor)]
    for a, name in zip(found, net.trace.outputs, strict=True):
        torch.testing.assert_close(a, values[name], rtol=1e-4, atol=1e-5)


def test_units_that_share_a_reader_each_take_their_own_columns(network):
    net = network(Dense)
    kept = {"stem": torch.arange(4), "conv1": torch.arange(1, 3)}
    left = surviving(net.units, kept)
    assert left["fc.weight", 1].nonzero()[0].tolist() == [0, 1, 2, 3, 7, 8, 10, 11, 12, 13]
    assert left["norm2.weight", 0].nonzero()[0].tolist() == [0, 1, 2, 3, 7, 8]
    conv2 = next(u for u in net.units if u.name == "conv2")
    now = as_it_stands(conv2, net.units, kept)
    (consumer,) = now.consumers
    assert consumer.channels.tolist() == [-1] * 6 + [0, 1, 2, 3]
    assert as_it_stands(conv2, net.units, {}) is conv2


class Plain(nn.Module):
    """A residual stream of single convolutions: each reads the stream and adds to it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.one, self.two = (nn.Conv2d(n, 8, 3, padding=1) for n in (3, 8, 8))
        self.fc = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem(x))
        x = F.relu(x + self.one(x))
        return self.fc(F.relu(x + self.two(x)).mean((2, 3)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Plain, Bottleneck], ids=lambda k: k.__name__)
def test_coupled_widths_are_cut_together_when_asked(kind):
    model, x = make(kind), images(32)
    config = ldrf.PruneConfig(solver="closed-form", energy=0.2, coupled=True)
    net = read_network(model, [x], (), config)
    (unit,) = [u for u in net.units if u.coupled]
    assert unit.partners
    result = ldrf.prune(model, [x], widths={unit.name: unit.width // 2}, config=config)
    assert result.model.fc.in_features == unit.width // 2
    report = next(h for h in result.history if h.name == unit.name)
    assert report.error < report.cut_error


@pytest.mark.slow
def test_coupled_widths_are_left_alone_unless_the_target_needs_them():
    model, x = make(Bottleneck), images(32)
    near = ldrf.prune(model, [x], speedup=1.2, config=FAST)
    assert "conv3" not in near.widths and "coupled=True" in {s.name: s.reason for s in near.skipped}["conv3"]
    inner = ldrf.inspect(model, [x], config=FAST)
    assert inner.coupled_speedup > inner.speedup
    far = ldrf.prune(model, [x], speedup=(inner.speedup + inner.coupled_speedup) / 2, config=FAST)
    assert far.widths["conv3"] < 16 and not {"conv3", "down"} & {s.name for s in far.skipped}
    named = ldrf.prune(model, [x], widths={"conv3": 9}, config=FAST)
    assert named.model.down.out_channels == named.model.conv3.out_channels == 9
    with pytest.raises(ldrf.LdrfError, match="cannot be cut"):
        ldrf.prune(model, [x], widths={"conv3": 9}, config=ldrf.PruneConfig(coupled=False))


@pytest.mark.slow
def test_a_forward_of_chance_is_cut_with_a_warning():
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(192, 8), nn.Linear(8, 5)

        def forward(self, x: Tensor) -> Tensor:
            return self.two(F.relu(self.one(x.flatten(1)))) + torch.rand(5)

    with pytest.warns(ldrf.LdrfWarning, match="gives other outputs for the same inputs each time"):
        assert ldrf.prune(settled(Noisy()), [images(8)], speedup=1.2, config=FAST).speedup >= 1.2


class Joined(nn.Module):
    """A stream whose neurons come from two layers side by side, and from a third that adds to both."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(3, 5, 3, padding=1)
        self.back, self.end = nn.Conv2d(9, 9, 1), nn.Conv2d(9, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(torch.cat([self.one(x), self.two(x)], 1))
        return self.end(torch.relu(y + self.back(y)))


@pytest.mark.slow
def test_no_layer_of_a_stream_loses_all_of_its_outputs():
    torch.manual_seed(0)
    model, x = Joined().eval(), images(32)
    config = ldrf.PruneConfig(coupled=True, steps=3, joint_steps=6)
    unit = next(u for u in read_network(model, [x], (), config).units if u.name == "one")
    assert unit.width == 9 and least_width(unit) == 2
    assert covering(unit, torch.tensor([4, 6, 8])).tolist() == [0, 4, 6]
    assert covering(unit, torch.tensor([1, 6])).tolist() == [1, 6]
    for method in ("ldrf", "li2017", "thinet"):
        result = ldrf.prune(model, [x], widths={"one": 2}, method=method, config=config)
        assert result.widths["one"] == 2 and result.model(x).shape == model(x).shape
        assert len(result.model.one.weight) == len(result.model.two.weight) == 1  # pyright: ignore[reportArgumentType]
    with pytest.raises(ldrf.LdrfError, match="width of 'one' must be a whole number from 2 to 9"):
        ldrf.prune(model, [x], widths={"one": 1}, config=config)
