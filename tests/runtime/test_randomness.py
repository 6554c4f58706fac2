"""Random outputs are noticed, and random numbers can be drawn twice."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from networks import Chain, images, make
from torch import nn

from ldrf.errors import LdrfWarning
from ldrf.inputs import Inputs
from ldrf.runtime.randomness import TOLERANCE, same_random_numbers, warn_of_randomness

INPUTS = Inputs((images(4),), {})


class Noisy(nn.Module):
    """Adds noise of this size to one of its outputs."""

    def __init__(self, size: float) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        clean = torch.ones(len(x), 3)
        return {"clean": clean, "noisy": clean + self.size * torch.rand(len(x), 3)}


class Dropped(Chain):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(super().forward(x), 0.5, training=True)


def test_the_same_numbers_are_drawn_within_and_none_are_lost():
    torch.manual_seed(5)
    wanted = torch.rand(2)
    torch.manual_seed(5)
    first = torch.rand(1)
    with same_random_numbers(3):
        one = torch.rand(4)
    with same_random_numbers(3):
        assert torch.equal(torch.rand(4), one)
    with same_random_numbers(4):
        assert not torch.equal(torch.rand(4), one)
    assert torch.equal(torch.cat([first, torch.rand(1)]), wanted)


@pytest.mark.parametrize("model", [Noisy(100 * TOLERANCE), make(Dropped)])
def test_random_outputs_are_warned_of(model):
    with pytest.warns(LdrfWarning, match=f"{type(model).__name__} gives other outputs for the same inputs each time"):
        warn_of_randomness(model, INPUTS)


@pytest.mark.parametrize("model", [Noisy(0.1 * TOLERANCE), make(Chain)])
def test_rounding_is_not_chance(model):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_randomness(model.eval(), INPUTS)
