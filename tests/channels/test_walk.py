"""Channels are followed through every kind of call, and stopped with a reason where they cannot be."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportOperatorIssue=false
# pyright: reportOptionalMemberAccess=false

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from networks import flow_of, images, settled
from torch import Tensor, nn

import ldrf


@pytest.mark.parametrize(
    ("carry", "dim", "ids"),
    [
        (F.relu, 1, range(6)),
        (lambda x: F.dropout(F.hardswish(x) * 2 + 1, training=False), 1, range(6)),
        (lambda x: F.avg_pool2d(F.max_pool2d(x, 2), 2), 1, range(6)),
        (lambda x: x.mean((2, 3)), 1, range(6)),
        (lambda x: x.mean((-1,), keepdim=True), 1, range(6)),
        (lambda x: x.flatten(1), 1, np.repeat(range(6), 16)),
        (lambda x: x.flatten(2), 1, range(6)),
        (lambda x: x.view(x.size(0), x.size(1), -1), 1, range(6)),
        (lambda x: x.flatten(2).transpose(1, 2), 2, range(6)),
        (lambda x: x.permute(0, 2, 3, 1), 3, range(6)),
        (lambda x: x.permute(0, 2, 3, 1).flatten(1, 2), 2, range(6)),
        (lambda x: F.pad(x, (1, 1, 2, 2)), 1, range(6)),
        (lambda x: x[:, :, ::2, 1:], 1, range(6)),
        (lambda x: x * torch.sigmoid(x.mean((2, 3), keepdim=True)), 1, range(6)),
        (lambda x: F.interpolate(x, scale_factor=2), 1, range(6)),
        (lambda x: x.permute(0, 2, 3, 1).flatten(1), 1, list(range(6)) * 16),
        (lambda x: torch.cat([x, x], 1), 1, [*range(6), *range(6)]),
        (lambda x: torch.cat([x, torch.ones(2, 3, 4, 4)], 1), 1, [*range(6), -1, -1, -1]),
        (lambda x: torch.stack([x, x], 2), 1, range(6)),
        (lambda x: x[:, :, None].expand(-1, -1, 3, -1, -1).repeat(1, 2, 1, 1, 1), 1, [*range(6), *range(6)]),
        (lambda x: x.roll(1, 2).flip(3)[:, :, [0, 2]].squeeze(0), 1, range(6)),
        (lambda x: x.unbind(2)[1], 1, range(6)),
        (lambda x: torch.softmax(x, 2).amax(3), 1, range(6)),
        (lambda x: F.pixel_unshuffle(x, 2), 1, np.repeat(range(6), 4)),
        (lambda x: F.layer_norm(x, (4,)), 1, range(6)),
        (lambda x: torch.where(x > 0, x, x.square()), 1, range(6)),
        (lambda x: x * torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-5), 1, range(6)),
        (lambda x: x / (x.norm(dim=1, keepdim=True) + 1e-5), 1, range(6)),
        (lambda x: x - torch.var_mean(x, 1, keepdim=True)[1], 1, range(6)),
    ],
)
def test_channels_that_can_be_followed(carry, dim, ids):
    graph, flow = flow_of(carry)
    found = flow.values[graph.outputs[0]]
    assert found.dim == dim
    assert found.ids.tolist() == list(ids)
    assert {reason for _, reason in flow.frozen} == {"it is an output of the model"}


def compared(x: Tensor) -> Tensor:
    """Attention that compares channels of positions and mixes something else."""
    return F.scaled_dot_product_attention(x, x, torch.ones(2, 16, 3))


@pytest.mark.parametrize(
    ("carry", "reason"),
    [
        (lambda x: torch.softmax(x, 1), "softmax"),
        (lambda x: x.view(x.size(0), 4, 24), "view"),
        (lambda x: x.view(2 * x.size(0), 3, 4, 4), "view"),
        (lambda x: F.pad(x, (0, 0, 0, 0, 1, 1)), "padded with extra channels"),
        (lambda x: x[:, 1:], "unequal parts"),
        (lambda x: x.split([1, 5], 1)[1], "unequal parts"),
        (lambda x: torch.cat([x, torch.ones(2, 6, 1, 4)], 2), "joined"),
        (lambda x: x.mean((1, 2)), "mean"),
        (lambda x: x.mean(1, keepdim=True), "mean"),
        (lambda x: F.layer_norm(x, (6, 4, 4)), "layer_norm"),
        (lambda x: x.select(1, 2), "select"),
        (lambda x: x[:, ::2], "slice"),
        (lambda x: x * torch.arange(6.0).view(6, 1, 1), "sum or product"),
        (lambda x: x.flip(1), "flip"),
        (lambda x: compared(x.flatten(2).transpose(1, 2)), "queries or keys"),
    ],
)
def test_channels_that_are_stopped_say_where(carry, reason):
    graph, flow = flow_of(carry)
    assert graph.outputs[0] not in flow.values
    frozen = [(ids, why) for ids, why in flow.frozen if reason in why]
    assert frozen, flow.frozen
    assert set(np.concatenate([ids for ids, _ in frozen]).tolist()) <= set(range(6))


class Scaled(nn.Module):
    """Per-channel tensors that are reshaped before they meet the map, one of them ahead of time."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 1)
        self.scale, self.shift, self.fc = nn.Parameter(torch.rand(8)), nn.Parameter(torch.rand(8)), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        scale = self.scale.view(1, -1, 1, 1)
        x = self.one(x) * scale + self.shift[:, None, None]
        return self.fc(F.relu(self.two(F.relu(x))).mean((2, 3)))


@pytest.mark.slow
def test_reshaped_tensors_are_cut_with_the_channels_they_meet():
    model = settled(Scaled())
    result = ldrf.prune(
        model, [images(16)], widths={"one": 5, "two": 6}, config=ldrf.PruneConfig(steps=5, joint_steps=5, chunk=8)
    )
    assert result.model.scale.shape == result.model.shift.shape == (5,)
    assert result.history[0].error <= result.history[0].cut_error
    assert result.model(images(3)).shape == (3, 5)
