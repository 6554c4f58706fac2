"""Channels are followed through every kind of call, and stopped with a reason where they cannot be."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportOperatorIssue=false
# pyright: reportOptionalMemberAccess=false

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given
from hypothesis import strategies as st
from networks import images, settled
from torch import Tensor, nn

import ldrf
from ldrf.channels.walk import follow_channels
from ldrf.inputs import Inputs
from ldrf.tracing.trace import trace


class Between(nn.Module):
    """conv (6 channels on a 4 x 4 map) -> ``carry`` -> nothing else."""

    def __init__(self, carry) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 1)
        self.carry = carry

    def forward(self, x):
        return self.carry(self.conv(x))


def flow_of(carry):
    graph = trace(Between(carry).eval(), Inputs((torch.randn(2, 3, 4, 4),), {}))
    return graph, follow_channels(graph)


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


@given(
    channels=st.integers(1, 5),
    height=st.integers(1, 4),
    width=st.integers(1, 4),
    start=st.integers(1, 3),
    rest=st.integers(0, 3),
)
def test_flatten_keeps_each_index_with_its_channel(channels, height, width, start, rest):
    """Against the oracle: flatten a map that holds its own channel numbers."""
    from types import SimpleNamespace

    from ldrf.channels.flow import Channels, Flow
    from ldrf.channels.shapes import view

    end = min(start + rest, 3)
    x = torch.arange(channels).view(1, channels, 1, 1).expand(2, channels, height, width)
    flat = x.flatten(start, end)
    node = SimpleNamespace(
        name="v", args=[SimpleNamespace(meta={"val": x})], meta={"val": flat}, target="aten.view.default"
    )
    flow = Flow(None)  # pyright: ignore
    found = view(flow, node, {"x": Channels(1, flow.fresh(channels))})  # pyright: ignore
    assume(channels > 1)
    assert found is not None
    for index, owner in enumerate(found.ids.tolist()):
        assert (flat.select(found.dim, index) == owner).all()
    assert len(found.ids) == flat.shape[found.dim]


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


def test_reshaped_tensors_are_cut_with_the_channels_they_meet():
    model = settled(Scaled())
    result = ldrf.prune(
        model, [images(16)], widths={"one": 5, "two": 6}, config=ldrf.PruneConfig(steps=5, joint_steps=5, chunk=8)
    )
    assert result.model.scale.shape == result.model.shift.shape == (5,)
    assert result.history[0].error <= result.history[0].cut_error
    assert result.model(images(3)).shape == (3, 5)


def test_sums_tie_channels_one_to_one():
    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Conv2d(3, 6, 1), nn.Conv2d(3, 6, 3, padding=1)

        def forward(self, x):
            return self.one(x) + self.two(x)

    graph = trace(Sum().eval(), Inputs((torch.randn(2, 3, 4, 4),), {}))
    flow = follow_channels(graph)
    one, two = (flow.produced[layer.node] for layer in graph.layers)
    assert [flow.root(int(i)) for i in one] == [flow.root(int(i)) for i in two]
    assert len({flow.root(int(i)) for i in one}) == 6


def test_carriers_are_cut_with_their_channels(network):
    from networks import Carriers

    flow = follow_channels(network(Carriers).trace)
    found = {(s.tensor, s.dim): len(s.ids) for s in flow.slices}
    assert found == {
        ("prelu.weight", 0): 10,
        ("scale", 0): 12,
        **{(f"bn2.{n}", 0): 14 for n in ("weight", "bias", "running_mean", "running_var")},
    }


@pytest.mark.parametrize(
    ("carry", "dim", "neurons"),
    [
        (lambda x: x.view(x.size(0), 2, 3, 4, 4), 2, [0, 1, 2, 0, 1, 2]),
        (lambda x: x.view(x.size(0), 2, 3, 4, 4).transpose(1, 2).flatten(1, 2), 1, [0, 1, 2, 0, 1, 2]),
        (lambda x: x.chunk(2, 1)[1], 1, [0, 1, 2, 0, 1, 2]),
        (lambda x: x[:, 2:], 1, [0, 1, 0, 1, 0, 1]),
        (lambda x: F.glu(x, 1), 1, [0, 1, 2, 0, 1, 2]),
        (lambda x: F.group_norm(x, 2), 1, [0, 1, 2, 0, 1, 2]),
        (lambda x: F.conv2d(x, torch.ones(6, 2, 1, 1), groups=3), None, None),
    ],
)
def test_equal_parts_make_one_neuron_of_several_channels(carry, dim, neurons):
    graph, flow = flow_of(carry)
    found = flow.values.get(graph.outputs[0])
    if dim is None:
        assert found is None
        return
    assert found.dim == dim
    roots = flow.roots(np.arange(6))
    together = [[bool(a == b) for b in roots] for a in roots]
    assert together == [[a == b for b in neurons] for a in neurons]


def test_the_first_part_of_a_split_view_can_shrink_instead():
    graph = trace(Between(lambda x: x.view(x.size(0), 2, 3, 4, 4)).eval(), Inputs((torch.randn(2, 3, 4, 4),), {}))
    node = next(n.name for n in graph.nodes if n.name.startswith("view"))
    flow = follow_channels(graph, {node: -2})
    assert flow.values[graph.outputs[0]].dim == 1
    roots = flow.roots(np.arange(6))
    assert len(set(roots[:3])) == len(set(roots[3:])) == 1 and roots[0] != roots[3]


@pytest.mark.parametrize("name", ["atan", "asinh", "erfc", "exp2", "sinc", "tan", "trunc", "sgn", "nan_to_num", "relu"])
def test_any_function_of_single_values_is_followed(name: str):
    class Bent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.second(getattr(torch, name)(self.first(x)))

    found = ldrf.inspect(Bent(), [torch.randn(8, 6)])
    assert [unit.name for unit in found.units] == ["first"]


def test_a_function_of_two_values_without_a_rule_ties_them():
    class Bent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.other, self.second = nn.Linear(6, 8), nn.Linear(6, 8), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.second(torch.atan2(self.first(x), self.other(x)))

    found = ldrf.inspect(Bent(), [torch.randn(8, 6)], config=ldrf.PruneConfig(coupled=True))
    assert [(unit.name, unit.together) for unit in found.units] == [("first", ("other",))]
