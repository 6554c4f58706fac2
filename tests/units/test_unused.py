"""Layers whose results nothing uses are named, and so is what cannot be cut because they read it."""

import pytest
import torch
from torch import Tensor, nn

import ldrf
from ldrf.units.unused import IDLE, TRAINED, UNUSED

IMAGES = [torch.randn(16, 3, 8, 8, generator=torch.Generator().manual_seed(0))]


class Auxiliary(nn.Module):
    """A chain whose first layer is read by a head that is called for nothing, beside one that is not called."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3)
        self.out = nn.Linear(8, 4)
        self.head, self.classes = nn.Conv2d(8, 5, 1), nn.Linear(5, 7)
        self.later = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).relu()
        self.classes(self.head(x).mean((2, 3)))
        return self.out(self.second(x).relu().mean((2, 3)))


@pytest.mark.slow
def test_layers_that_nothing_uses_are_told_apart_from_layers_that_are_not_called():
    reasons = {s.name: s.reason for s in ldrf.inspect(Auxiliary(), IMAGES).skipped}
    assert reasons["head"] == reasons["classes"] == UNUSED
    assert reasons["later"] == IDLE


@pytest.mark.slow
def test_what_such_a_layer_reads_keeps_its_width_and_names_it():
    result = ldrf.prune(Auxiliary(), IMAGES, keep={"second": 0.5})
    reasons = {s.name: s.reason for s in result.skipped}
    assert reasons["first"] == "'head' reads it too, and nothing uses what that gives"
    assert result.widths == {"second": 4}
    assert result.model(IMAGES[0]).shape == (16, 4)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        self.again = nn.Linear(6, 6)
        self.again.weight = self.second.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).relu())


def test_a_weight_that_a_called_layer_shares_is_used():
    skipped = ldrf.inspect(Tied(), [torch.randn(8, 6)]).skipped
    assert not {s.reason for s in skipped} & {UNUSED, IDLE}


class Counting(nn.Module):
    """Its code multiplies by a number that changes a little with the width."""

    def __init__(self, change: float) -> None:
        super().__init__()
        self.change = change
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).relu()
        return self.second(x * (1 + self.change * (x.shape[1] - 8)))


@pytest.mark.parametrize("change", [1e-4, 1.0])
def test_a_number_of_small_effect_is_found_too(change: float):
    found = ldrf.inspect(Counting(change), [torch.randn(8, 6)])
    assert {s.name: s.reason for s in found.skipped}["first"] == "the model's forward spells out its width"
    assert not found.units


class Deep(nn.Module):
    """A chain whose second layer is read by a head in training alone, as GoogLeNet's are."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 12, 3), nn.Conv2d(12, 8, 1)
        self.norm = nn.BatchNorm2d(8)
        self.out, self.head, self.later = nn.Linear(8, 4), nn.Linear(12, 4), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        x = self.second(self.norm(self.first(x)).relu()).relu()
        out = self.out(self.third(x).relu().mean((2, 3)))
        return (out, self.head(x.mean((2, 3)))) if self.training else out


@pytest.mark.slow
def test_what_a_layer_reads_that_is_called_in_training_only_keeps_its_width():
    model = Deep().eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    result = ldrf.prune(model, IMAGES, speedup=1.3, config=ldrf.PruneConfig(solver="closed-form"))
    reasons = {s.name: s.reason for s in result.skipped}
    assert reasons["second"] == "'head', which the model calls in training only, reads it too"
    assert reasons["head"] == TRAINED and reasons["later"] == IDLE
    assert result.widths.keys() == {"first", "third"}
    assert [t.shape for t in result.model.train()(IMAGES[0])] == [(16, 4), (16, 4)]
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
