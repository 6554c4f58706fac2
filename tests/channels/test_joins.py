"""Values put together: along the channels they follow each other, along another dimension they are tied."""

# pyright: reportAttributeAccessIssue=false

import numpy as np
import pytest
import torch
from networks import flow_of
from torch import Tensor, nn

from ldrf.channels.walk import follow_channels
from ldrf.inputs import Inputs
from ldrf.tracing.trace import trace


@pytest.mark.parametrize(
    ("carry", "dim", "ids"),
    [
        (lambda x: torch.cat([x, x.relu()], 1), 1, [*range(6), *range(6)]),
        (lambda x: torch.cat([torch.zeros(2, 2, 4, 4), x], 1), 1, [-1, -1, *range(6)]),
        (lambda x: torch.cat([x, x.relu()], 2), 1, range(6)),
        (lambda x: torch.stack([x, x.relu()], 1), 2, range(6)),
        (lambda x: torch.stack([x, x.relu()], 2), 1, range(6)),
        (lambda x: torch.stack([x, x.relu()], -1), 1, range(6)),
    ],
)
def test_each_index_of_a_joined_value_keeps_its_channel(carry, dim, ids):
    graph, flow = flow_of(carry)
    channels = flow.values[graph.outputs[0]]
    assert channels.dim == dim and channels.ids.tolist() == list(ids)


class Joined(nn.Module):
    """Two convolutions whose maps are put side by side along the height."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 6, 1), nn.Conv2d(3, 6, 1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.one(x), self.two(x)], 2)


def test_layers_side_by_side_share_their_neurons():
    flow = follow_channels(trace(Joined().eval(), Inputs((torch.randn(2, 3, 4, 4),), {})))
    one, two = (flow.roots(ids) for ids in flow.produced.values())
    assert np.array_equal(one, two) and len(set(one.tolist())) == 6 and len(flow.summed) == 1


@pytest.mark.parametrize(
    "carry",
    [
        lambda x: torch.cat([x, torch.ones(2, 6, 1, 4)], 2),
        lambda x: torch.cat([x, x.transpose(1, 2).reshape(2, 6, 4, 4)], 2),
    ],
)
def test_values_that_cannot_be_cut_with_their_neighbours_stop_them(carry):
    graph, flow = flow_of(carry)
    assert graph.outputs[0] not in flow.values and flow.frozen
