"""A cut by MACs whose gain the clock does not show is told, with the way out."""

import warnings

import pytest
import torch
from torch import nn

from ldrf.deployment import gain
from ldrf.errors import LdrfWarning
from ldrf.inputs import Inputs

X = Inputs((torch.zeros(2, 3),), {})


def test_a_gain_far_below_the_promise_warns(monkeypatch):
    model = nn.Linear(3, 3)
    monkeypatch.setattr(gain, "SHORT", 0.0)
    ticks = iter([0.0, 4.0, 4.0, 8.0] + [v for k in range(3) for v in (10 * k, 10 * k + 4, 10 * k + 4, 10 * k + 7)])
    monkeypatch.setattr(gain, "clock_for", lambda _: lambda: next(ticks))
    with pytest.warns(LdrfWarning, match=r"3.00 times fewer MACs, but is 1.33 times as fast .* with latency="):
        gain.warn_of_small_gain(model, model, X, 3.0)


def test_a_network_of_no_time_is_left_alone(monkeypatch):
    monkeypatch.setattr(gain, "SHORT", 1e9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gain.warn_of_small_gain(nn.Linear(3, 3), nn.Linear(3, 3), X, 100.0)
