"""Peak memory is counted from what is alive at once."""

import torch
from torch import nn

from ldrf.inputs import Inputs
from ldrf.measuring.memory import peak_bytes


def test_weights_inputs_and_activations_alive_at_once_are_counted():
    x = torch.randn(4, 10)
    one = nn.Linear(10, 100)
    assert peak_bytes(one, Inputs((x,), {})) == 4 * (1000 + 100 + 40 + 400)
    several = nn.Sequential(nn.Linear(10, 100), nn.ReLU(), nn.Linear(100, 10), nn.ReLU())
    weights = sum(p.numel() for p in several.parameters())
    assert peak_bytes(several, Inputs((x,), {})) == 4 * (weights + 40 + 800)


def test_views_and_work_in_place_cost_nothing():
    model = nn.Sequential(nn.Linear(10, 100), nn.ReLU(inplace=True), nn.Unflatten(1, (10, 10)), nn.Flatten())
    assert peak_bytes(model, Inputs((torch.randn(4, 10),), {})) == 4 * (1100 + 40 + 400)
