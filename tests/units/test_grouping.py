"""Which layers are cut together, who reads them, and why the others keep their width."""

import pytest
import torch.nn.functional as F
from networks import (
    Bottleneck,
    Branches,
    CalledTwice,
    Carriers,
    Chain,
    Cross,
    Dense,
    Flattened,
    Gated,
    Grouped,
    Heads,
    Inverted,
    LinearOnly,
    Mlp,
    Normed,
    Residual,
    Sequence1d,
    Shuffled,
    Tied,
    TwoInputs,
    UNet,
    VitBlock,
    images,
    settled,
)
from torch import Tensor, nn

from ldrf.calibration.network import read_network
from ldrf.config import PruneConfig

EXPECTED = {  # network -> unit -> consumers
    Chain: {"conv1": ["conv2"], "conv2": ["fc"]},
    Residual: {"block1.conv1": ["block1.conv2"], "block2.conv1": ["block2.conv2"]},
    Bottleneck: {"stem": ["conv1", "down"], "conv1": ["conv2"], "conv2": ["conv3"]},
    Flattened: {"conv": ["fc1"], "fc1": ["fc2"]},
    Mlp: {"first": ["second"], "second": ["last"]},
    Inverted: {"expand": ["project"]},
    VitBlock: {"fc1": ["fc2"]},
    Branches: {"trunk": ["fc", "near", "wide"]},
    TwoInputs: {"conv": ["read"], "vector": ["mix"]},
    CalledTwice: {"free": ["last"]},
    Tied: {"free": ["last"]},
    Carriers: {"conv1": ["conv2"], "conv2": ["fc1"], "fc1": ["fc2"]},
    LinearOnly: {"first": ["second"], "second": ["last"]},
    Sequence1d: {"conv1": ["conv2"], "conv2": ["fc"]},
    Dense: {"stem": ["conv1", "conv2", "fc"], "conv1": ["conv2", "fc"], "conv2": ["fc"]},
    Grouped: {"conv1": ["conv3", "squeeze"], "squeeze": ["excite"], "conv3": ["fc"]},
    Shuffled: {"stem": ["fc", "one.0", "two.0"], "one.0": ["one.3"], "two.0": ["two.3"]},
    UNet: {
        "down1": ["down2", "join2"],
        "down2": ["down3", "join1"],
        "down3": ["up1"],
        "up1": ["join1"],
        "join1": ["up2"],
        "up2": ["join2"],
    },
    Normed: {"conv1": ["conv2"], "conv2": ["fc"]},
    Gated: {"gate": ["down"], "both": ["back"]},
    Heads: {"q": ["o"]},
    Cross: {"enter": ["leave", "one"], "one": ["leave", "two"], "two": ["leave"], "leave": ["fc"]},
}


@pytest.mark.parametrize("kind", EXPECTED, ids=lambda k: k.__name__)
def test_units_and_their_consumers(network, kind):
    found = {u.name: sorted(c.layer.name for c in u.consumers) for u in network(kind).units}
    assert found == EXPECTED[kind]


@pytest.mark.parametrize("kind", EXPECTED, ids=lambda k: k.__name__)
def test_every_layer_is_a_unit_a_carrier_or_skipped_with_a_reason(network, kind):
    net = network(kind)
    units, skipped = {u.name for u in net.units}, {s.name for s in net.skipped}
    carriers = {s.tensor.removesuffix(".weight") for u in net.units for s in u.slices}
    assert not units & skipped
    assert {layer.name for layer in net.trace.layers} <= units | skipped | carriers
    assert all(s.reason.strip() for s in net.skipped)


@pytest.mark.parametrize(
    ("kind", "name", "reason"),
    [
        (Chain, "fc", "output of the model"),
        (Residual, "stem", "'block1.conv2'"),
        (Residual, "block2.conv2", "sum"),
        (Bottleneck, "conv3", "'down'"),
        (VitBlock, "qkv", "queries or keys"),
        (VitBlock, "proj", "tied"),
        (CalledTwice, "inner", "more than one call"),
        (CalledTwice, "first", "'inner'"),
        (Tied, "one", "more than one call"),
        (TwoInputs, "read", "'mix'"),
        (TwoInputs, "head", "output of the model"),
    ],
)
def test_reasons_for_keeping_a_width(network, kind, name, reason):
    reasons = {s.name: s.reason for s in network(kind).skipped}
    assert reason in reasons[name]


def test_residual_branches_know_the_sum_they_close(network):
    closing = {u.name: u.consumers[0].sum is not None for u in network(Bottleneck).units}
    assert closing == {"stem": False, "conv1": False, "conv2": True}
    assert all(c.sum and c.other for u in network(Residual).units for c in u.consumers)


@pytest.mark.slow
def test_depthwise_layers_and_their_norms_are_carried(network):
    (unit,) = network(Inverted).units
    assert {s.tensor for s in unit.slices} == {
        "depth.weight",
        *(f"bn2.{n}" for n in ("weight", "bias", "running_mean", "running_var")),
    }


def test_flattened_maps_give_each_neuron_several_inputs(network):
    channels = {u.name: u.consumers[0].channels.tolist() for u in network(Flattened).units}
    assert channels == {"conv": [n for n in range(10) for _ in range(9)], "fc1": list(range(14))}


def test_units_come_in_forward_order_and_cover_their_consumers(network):
    net = network(Carriers)
    assert [u.name for u in net.units] == ["conv1", "conv2", "fc1"]
    for unit in net.units:
        assert unit.start < unit.end
        assert all(net.trace.index(c.layer.node) <= unit.end for c in unit.consumers)


class SharedParts(nn.Module):
    """Two convolutions go through one BatchNorm, or one PReLU."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.one, self.two, self.part = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 1), part
        self.free, self.fc = nn.Conv2d(8, 6, 1), nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.part(self.two(F.relu(self.part(self.one(x)))))
        return self.fc(F.relu(self.free(x)).mean((2, 3)))


class DepthwiseFirst(nn.Module):
    """Its first layer works on the image's own channels, which cannot be cut."""

    def __init__(self) -> None:
        super().__init__()
        self.depth, self.one, self.fc = nn.Conv2d(3, 3, 3, groups=3), nn.Conv2d(3, 8, 1), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(F.relu(self.one(self.depth(x))).mean((2, 3)))


class SpeltOut(Chain):
    """Its forward holds the second width as a number."""

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))
        return self.fc(F.adaptive_avg_pool2d(x, 1).view(-1, 16))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "free", "held", "reason"),
    [
        (SharedParts(nn.BatchNorm2d(8)), {"free"}, "one", "more than one call"),
        (SharedParts(nn.PReLU(8)), {"free"}, "one", "'part.weight', which is used by more than one call"),
        (DepthwiseFirst(), {"one"}, "depth", "depthwise"),
        (SpeltOut(), {"conv1"}, "conv2", "spells out its width"),
    ],
    ids=["shared norm", "shared prelu", "depthwise first", "spelt-out width"],
)
def test_what_cannot_be_cut_alone_keeps_its_width(model, free, held, reason):
    net = read_network(settled(model), [images(4)], (), PruneConfig())
    assert {u.name for u in net.units} == free
    assert reason in {s.name: s.reason for s in net.skipped}[held]
