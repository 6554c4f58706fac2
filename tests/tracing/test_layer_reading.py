"""A layer is read with the right tensors, geometry and norm."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false

import pytest
import torch
from fixed_batches import Folded
from networks import (
    CASES,
    Carriers,
    Case,
    Chain,
    Inverted,
)
from torch import Tensor, nn

from ldrf.inputs import Inputs
from ldrf.tracing.interpreter import read_tensor
from ldrf.tracing.trace import trace


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_layer_names_the_tensor_it_uses(network, case: Case):
    net = network(case.kind)
    modules = {n: m for n, m in net.model.named_modules() if isinstance(m, nn.modules.conv._ConvNd | nn.Linear)}
    assert {layer.name for layer in net.trace.layers} <= set(modules)
    assert len(net.trace.layers) >= len({id(m.weight) for m in modules.values()})
    for layer in net.trace.layers:
        module = modules[layer.name]
        assert read_tensor(net.model, layer.weight) is module.weight
        assert (layer.bias is None) == (module.bias is None)
        assert layer.outputs == module.weight.shape[layer.row_dim]
        assert layer.inputs == module.weight.shape[1 - layer.row_dim] * layer.groups


@pytest.mark.slow
def test_a_batchnorm_behind_a_convolution_is_folded_and_others_are_not(network):
    norms = {la.name: la.norm.module if la.norm else None for la in network(Chain).trace.layers}
    assert norms == {"conv1": "bn1", "conv2": "bn2", "fc": None}
    norms = {la.name: la.norm and la.norm.module for la in network(Carriers).trace.layers}
    assert norms == {"conv1": "bn1", "conv2": None, "fc1": None, "fc2": None}


def test_geometry_of_layers(network):
    layers = {la.name: la for la in network(Inverted).trace.layers}
    assert layers["stem"].stride == (2, 2) and layers["stem"].positions == 16
    assert layers["depth"].is_depthwise and layers["depth"].groups == 18
    assert not layers["expand"].is_depthwise
    assert layers["fc"].is_linear and layers["fc"].positions == 1


class TokensFirst(nn.Module):
    """Its first layer reads [tokens, batch, channels], its second [batch, tokens, channels]."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x.transpose(0, 1))).transpose(0, 1))


def test_calls_are_those_of_one_example_wherever_the_batch_is_counted():
    found = trace(TokensFirst().eval(), Inputs((torch.randn(2, 5, 4),), {}))
    assert [layer.calls for layer in found.layers] == [5, 5]


def test_a_batch_folded_into_the_positions_is_counted_once():
    found = trace(Folded().eval(), Inputs((torch.randn(4, 5, 6),), {}, fixed=True))
    assert [(layer.positions, layer.calls) for layer in found.layers] == [(20, 5), (20, 5), (1, 1)]
