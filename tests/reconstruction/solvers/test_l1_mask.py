"""The l1-mask solver chooses its own neurons: dead ones and copies go first."""

import pytest
import torch
from networks import Chain, Gated, images, make
from torch import nn

import ldrf
from ldrf.calibration.network import read_network
from ldrf.calibration.store import ActivationStore
from ldrf.config import PruneConfig
from ldrf.reconstruction.lockstep import Lockstep
from ldrf.reconstruction.problem import open_problem
from ldrf.reconstruction.solvers.l1_mask import choose, has_own_mask, masked_neurons
from ldrf.tracing.interpreter import read_tensor


def _net(flat: bool) -> nn.Sequential:
    """conv - norm - relu - pool - reader, two of whose eight neurons are copies of others and two dead."""
    torch.manual_seed(0)
    first = nn.Conv2d(3, 8, 3)
    with torch.no_grad():
        first.weight[4:6], first.weight[6:] = 0.6 * first.weight[:2], 0.0
        read_tensor(first, "bias").copy_(torch.tensor([0.0] * 6 + [-1.0] * 2))
    last = [nn.Flatten(), nn.Linear(8 * 9, 5)] if flat else [nn.Conv2d(8, 6, 3)]
    return nn.Sequential(first, nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), *last).eval()


@pytest.mark.slow
@pytest.mark.parametrize("flat", [False, True])
def test_a_unit_loses_its_dead_neurons_and_copies_first(flat):
    generator = torch.Generator().manual_seed(1)
    config = PruneConfig(chunk=16, steps=100)
    network = read_network(_net(flat), [torch.randn(48, 3, 8, 8, generator=generator)], (), config)
    (unit,) = network.units
    ones = {c.goal: torch.ones(c.layer.outputs) for c in unit.consumers}
    with ActivationStore(2**30) as store:
        walk = Lockstep(network.trace, network.dense, network.calibration, store)
        walk.advance(unit.start)
        with open_problem(walk, unit, ones) as problem:
            without_dead = masked_neurons(problem, 6, config)
            without_copies = masked_neurons(problem, 4, config)
            assert torch.equal(without_copies, choose(problem, torch.arange(4), config))
            assert choose(problem, torch.arange(8), config).tolist() == list(range(8))
    assert without_dead.tolist() == [0, 1, 2, 3, 4, 5]
    assert {int(k) % 4 for k in without_copies} == {0, 1, 2, 3} and without_copies.max() < 6


@pytest.mark.slow
def test_the_mask_applies_where_one_layer_alone_makes_the_neurons(network):
    assert all(has_own_mask(unit) for unit in network(Chain).units)
    assert not all(has_own_mask(unit) for unit in network(Gated).units), "the layers of a product share their neurons"


@pytest.mark.slow
def test_neurons_chosen_by_the_mask_beat_the_first_ones():
    """Against top-k selection of a network whose first neurons are dead."""
    model = make(Chain)
    model.bn1.weight.data[:6], model.bn1.bias.data[:6] = 0, -1  # pyright: ignore
    results = [
        ldrf.prune(model, [images(32)], widths={"conv1": 6}, config=PruneConfig(solver=s, selection="top-k", steps=10))
        for s in ("joint", "l1-mask")
    ]
    first, masked = (result.history[0].cut_error for result in results)
    assert masked < 0.1 * first
