"""What a layer reads is compared where outputs hide it, with channels that are awake and unlike each other."""

import pytest
import torch
from networks import CASES, Chain, images, make
from torch import Tensor, nn

import ldrf
from ldrf.calibration.network import read_network
from ldrf.inputs import Inputs
from ldrf.tracing.interpreter import folded
from ldrf.units.layer_inputs import fed_wrongly, noted_inputs, randomised
from ldrf.units.trial import graph_values


class Dead(nn.Module):
    """Shuffles channels that a ReLU has all set to zero, and so gives the same in whatever order."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 1, groups=2)
        self.three, self.head = nn.Conv2d(8, 6, 1), nn.Linear(6, 4)
        nn.init.constant_(self.two.get_parameter("bias"), -100.0)

    def forward(self, x: Tensor) -> Tensor:
        x = self.two(self.one(x).relu()).relu()
        b, c, h, w = x.shape
        x = x.view(b, 2, c // 2, h, w).transpose(1, 2).reshape(b, c, h, w)
        return self.head(self.three(x).relu().mean((2, 3)))


@pytest.mark.slow
def test_a_dead_relu_does_not_hide_that_channels_are_shuffled_otherwise():
    torch.manual_seed(0)
    network = read_network(Dead().eval(), [images(8)], (), ldrf.PruneConfig())
    assert [unit.name for unit in network.units] == ["three"]
    assert {s.name: s.reason for s in network.skipped}["one"] == "the model's forward spells out its width"


def test_in_a_randomised_copy_no_channel_sleeps_and_no_two_are_alike():
    model, x = make(Chain), images(4).abs()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.register_parameter("empty", nn.Parameter(torch.empty(0, 3)))
    awake = randomised(model)
    with noted_inputs(awake, ["conv2", "fc"]) as noted, torch.no_grad():
        awake(x)
    assert all(torch.equal(tensor, model.state_dict()[name]) for name, tensor in before.items())
    for (seen,) in noted.values():
        means = seen.transpose(0, 1).flatten(1).mean(1)
        assert (means > 0).all() and len(means.unique()) == len(means)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.kind.__name__)
def test_no_layer_of_an_uncut_model_reads_other_values_than_its_graph(case):
    model = make(case.kind)
    network = read_network(model, [case.batch(8)], (), ldrf.PruneConfig())
    inputs = network.example
    for net in (network.model, randomised(network.model)):
        with noted_inputs(net, {layer.name for layer in network.trace.layers}) as noted, torch.no_grad():
            inputs.call(net)
        given = dict(zip(network.trace.inputs, [*inputs.args, *inputs.kwargs.values()], strict=False))
        values = graph_values(network.trace, folded(network.trace, net), given)
        assert values is not None and not fed_wrongly(network.trace, noted, values)


def test_swapped_channels_are_noticed():
    network = read_network(make(Chain), [images(8)], (), ldrf.PruneConfig())
    swapped = make(Chain)
    with torch.no_grad():
        weight = swapped.get_parameter("conv1.weight")
        weight.copy_(weight.flip(0))
    with noted_inputs(swapped, ["conv1", "conv2"]) as noted, torch.no_grad():
        Inputs((images(8)[:2],), {}).call(swapped)
    values = graph_values(network.trace, network.dense, {network.trace.inputs[0]: images(8)[:2]})
    assert values is not None and fed_wrongly(network.trace, noted, values) == {"conv2"}
