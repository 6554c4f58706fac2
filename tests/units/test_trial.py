"""A cut model is compared with its cut graph in all that it gives, and the graph waits until the model has run."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from networks import Chain, images, make
from torch import Tensor, nn

import ldrf
from ldrf.calibration.network import Network, read_network
from ldrf.inputs import Inputs
from ldrf.units import trial
from ldrf.units.trial import cut_copy, cut_trial, gap, outputs_of, unevenly, without_last


class Stubborn(nn.Module):
    """Values that grow with the width, so that a cut of ``first`` runs and is wrong, or a width that is spelt out."""

    def __init__(self, spelt: bool = False) -> None:
        super().__init__()
        self.spelt, self.first, self.last = spelt, nn.Conv2d(3, 8, 1), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.first(x)).mean((2, 3))
        return self.last(x.view(-1, 8) if self.spelt else x * x.shape[1])


def read(model: nn.Module) -> Network:
    return read_network(model, [images(8)], (), ldrf.PruneConfig())


@pytest.mark.parametrize(
    ("found", "wanted", "far"),
    [
        ([torch.ones(2)], [torch.ones(2)], 0.0),
        ([torch.tensor([1.0, 3.0])], [torch.tensor([1.0, 4.0])], 0.25),
        ([torch.tensor([math.nan, 4.0])], [torch.tensor([1.0, 4.0])], math.inf),
        ([torch.tensor([math.inf, 4.0])], [torch.tensor([math.inf, 4.0])], 0.0),
        ([torch.ones(2, 1)], [torch.ones(2)], math.inf),
        ([], [torch.ones(2)], math.inf),
        (None, [torch.ones(2)], math.inf),
        ([torch.tensor([7])], [torch.tensor([3])], 0.0),  # whole numbers are places and classes, not values
    ],
)
def test_a_gap_is_relative_and_infinite_for_other_shapes(found: Any, wanted: list[Tensor], far: float):
    assert gap(found, wanted) == pytest.approx(far, abs=2e-6)


def test_a_model_and_its_graph_agree_whole_and_cut():
    net = read(make(Chain))
    tried = cut_trial(net.trace, net.dense, net.model, net.example)
    assert (
        tried.rounding < 1e-5
        and tried.whole.same_attention
        and tried.passes(net.trace, net.units, without_last(net.units))
    )


def test_uneven_cuts_differ_between_neighbours_and_leave_half():
    net = read(make(Chain))
    left = [(u.width, len(kept)) for u, kept in zip(net.units, unevenly(net.units).values(), strict=True)]
    assert len({width - kept for width, kept in left}) > 1 and all(2 * kept >= width > kept for width, kept in left)


def test_a_copy_shares_what_is_not_cut_and_the_model_stays_whole():
    net = read(make(Chain))
    unit, before = net.units[0], {name: p.shape for name, p in net.model.named_parameters()}
    copied = cut_copy(net.model, (unit,), without_last((unit,)))
    assert copied is not None and copied.get_parameter(unit.producer.weight).shape[0] == unit.width - 1
    assert {name: p.shape for name, p in net.model.named_parameters()} == before
    assert any(a is b for a, b in zip(copied.parameters(), net.model.parameters(), strict=True))


def test_a_width_that_counts_in_the_values_is_left_out():
    net = read(make(Stubborn))
    assert not net.units and "spells out" in {s.name: s.reason for s in net.skipped}["first"]


def test_the_graph_does_not_run_for_a_cut_that_the_model_refuses(monkeypatch):
    ran: list[bool] = []
    real = trial.graph_values

    def counted(*args: Any) -> Any:
        ran.append(True)
        return real(*args)

    monkeypatch.setattr(trial, "graph_values", counted)
    model = Stubborn(spelt=True).eval()
    assert not read(model).units and len(ran) == 2  # for the whole model, at two batch sizes
    assert outputs_of(model, Inputs((torch.ones(1, 2),), {})) is None
