"""Layers that are no conv or linear call of the graph are named, too."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import ldrf


class Odd(nn.Module):
    """A layer of every kind that is not cut, between layers that would be."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.up = nn.Embedding(9, 8), nn.ConvTranspose1d(8, 8, 2, 2, groups=4)
        self.scaled = parametrizations.weight_norm(nn.Conv1d(8, 8, 1))
        self.memory, self.pairs = nn.LSTM(8, 8, batch_first=True), nn.Bilinear(8, 8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.scaled(self.up(self.words(x).transpose(1, 2)).relu())
        last = self.memory(x.transpose(1, 2))[0][:, -1]
        return self.pairs(last, last)


@pytest.fixture(scope="module")
def reasons() -> dict[str, str]:
    found = ldrf.inspect(Odd(), [torch.randint(0, 9, (8, 12))])
    assert not found.units
    return {s.name: s.reason for s in found.skipped}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("words", "it is an embedding"),
        ("up", "it is a transposed convolution in groups"),
        ("scaled", "its weight is computed from other tensors when the model runs"),
        ("memory", "it is a recurrent layer"),
        ("pairs", "it multiplies two inputs"),
    ],
)
def test_a_layer_that_is_not_followed_is_named(reasons: dict[str, str], name: str, reason: str):
    assert reasons[name] == reason


@pytest.mark.slow
def test_every_layer_is_named_once(reasons: dict[str, str]):
    layers = {name for name, module in Odd().named_children() if module}
    assert reasons.keys() == layers


def test_layers_that_are_cut_along_are_none_of_them():
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 3, groups=8), nn.ReLU(), nn.Conv2d(8, 4, 1))
    found = ldrf.inspect(model, [torch.randn(4, 3, 6, 6)])
    assert [s.name for s in found.skipped] == ["3"] and "1" in found.units[0].together
