"""Numbers of the model for each channel, as in norms, are cut with the channels."""

# pyright: reportIndexIssue=false

import copy

import pytest
import torch
import torch.nn.functional as F
from networks import Carriers, flow_of, images, settled
from torch import nn

from ldrf.calibration.network import read_network
from ldrf.channels.walk import follow_channels
from ldrf.config import PruneConfig
from ldrf.units.module_surgery import cut_plainly


@pytest.mark.slow
def test_carriers_are_cut_with_their_channels(network):
    flow = follow_channels(network(Carriers).trace)
    assert {(s.tensor, s.dim): len(s.ids) for s in flow.slices} == {
        ("prelu.weight", 0): 10,
        ("scale", 0): 12,
        **{(f"bn2.{n}", 0): 14 for n in ("weight", "bias", "running_mean", "running_var")},
    }


NORMS = [
    nn.BatchNorm2d(8),
    nn.GroupNorm(2, 8),
    nn.GroupNorm(1, 8),
    nn.GroupNorm(8, 8),  # a group for each channel: their number shrinks with the width
    nn.InstanceNorm2d(8),
    nn.InstanceNorm2d(8, affine=True, track_running_stats=True),
    nn.PReLU(8),
]


@pytest.mark.parametrize("norm", NORMS, ids=lambda norm: type(norm).__name__)
def test_a_model_with_a_cut_norm_runs_like_its_graph(norm: nn.Module):
    """ReLU before the norm, so that a BatchNorm is not folded."""
    model = settled(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), norm, nn.Conv2d(8, 4, 1), nn.Flatten()))
    net = read_network(model, [images(4)], (), PruneConfig())
    (unit,) = net.units
    tensors = {piece.tensor for piece in unit.slices}
    own = dict(norm.named_parameters()) | {n: b for n, b in norm.named_buffers() if b.ndim}
    assert tensors == {f"2.{name}" for name in own}
    slim = copy.deepcopy(model)
    cut_plainly(slim, net.units, {unit.name: torch.arange(unit.width - 1)})
    assert slim(images(2)).shape == model(images(2)).shape
    assert getattr(slim[2], "num_groups", 0) in (getattr(norm, "num_groups", 0), 7)


def test_an_instance_norm_is_cut_like_any_norm_of_single_channels():
    """Each channel is normalised by itself: the channels that stay keep their values."""
    model = settled(nn.Sequential(nn.Conv2d(3, 8, 3), nn.InstanceNorm2d(8, affine=True), nn.Conv2d(8, 4, 1)))
    net = read_network(model, [images(4)], (), PruneConfig())
    slim = copy.deepcopy(model)
    cut_plainly(slim, net.units, {net.units[0].name: torch.arange(6)})
    assert slim[1].num_features == 6
    assert torch.allclose(slim[:2](images(2)), model[:2](images(2))[:, :6], atol=1e-6)


@pytest.mark.parametrize(
    ("carry", "reason"),
    [
        (lambda x: F.layer_norm(x, (6, 4, 4)), "layer_norm"),
        (lambda x: F.group_norm(x.mean((2, 3)), 2), "left with one value"),
    ],
)
def test_norms_that_fix_the_number_of_channels_say_so(carry, reason):
    _, flow = flow_of(carry)
    assert any(reason in why for _, why in flow.frozen)
