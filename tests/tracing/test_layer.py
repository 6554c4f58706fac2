"""A layer's geometry with its own weights computes what the module computes, whole and with groups cut."""

# pyright: reportArgumentType=false

import copy

import pytest
import torch
from torch import nn

from ldrf.inputs import Inputs
from ldrf.tracing.interpreter import folded
from ldrf.tracing.layer import apply_affine, transposed_kernel
from ldrf.tracing.trace import trace

MODULES = {
    "linear": (nn.Linear(4, 6), (4,)),
    "tokens": (nn.Linear(4, 6), (5, 4)),
    "conv1d": (nn.Conv1d(4, 6, 3, stride=2, padding=1), (4, 9)),
    "conv2d": (nn.Conv2d(4, 6, (3, 2), stride=(1, 2), padding=(1, 0), dilation=2), (4, 9, 8)),
    "conv3d": (nn.Conv3d(4, 6, 2), (4, 4, 5, 3)),
    "same": (nn.Conv2d(4, 6, 3, padding="same"), (4, 5, 5)),
    "groups": (nn.Conv2d(4, 6, 3, groups=2), (4, 5, 5)),
    "transposed": (nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1), (4, 5, 5)),
    "transposed1d": (nn.ConvTranspose1d(4, 6, 3, dilation=2), (4, 7)),
}


@pytest.mark.parametrize("name", MODULES)
def test_a_layer_applies_its_weights_like_its_module(name: str):
    module, shape = MODULES[name]
    x = torch.randn(3, *shape)
    graph = trace(nn.Sequential(copy.deepcopy(module)).eval(), Inputs((x,), {}))
    (layer,) = graph.layers
    weight, bias = folded(graph, nn.Sequential(module)).layers[layer.node]
    torch.testing.assert_close(apply_affine(layer, x, weight, bias), module(x), rtol=1e-5, atol=1e-5)
    assert (layer.inputs, layer.outputs) == (4, 6) and layer.is_linear == isinstance(module, nn.Linear)


def test_a_weight_that_lost_a_group_reads_the_other_group_alone():
    module, x = nn.Conv2d(4, 6, 3, groups=2), torch.randn(2, 4, 5, 5)
    (layer,) = trace(nn.Sequential(copy.deepcopy(module)).eval(), Inputs((x,), {})).layers
    assert module.bias is not None
    slim = apply_affine(layer, x[:, 2:], module.weight[3:], module.bias[3:])
    torch.testing.assert_close(slim, module(x)[:, 3:])


@pytest.mark.parametrize("dims", [0, 1, 2, 3])
def test_a_kernel_transposed_twice_is_itself(dims: int):
    weight = torch.randn(3, 4, *range(2, 2 + dims))
    assert transposed_kernel(weight).shape[:2] == (4, 3)
    assert torch.equal(transposed_kernel(transposed_kernel(weight)), weight)


@pytest.mark.parametrize(
    ("inputs", "outputs", "stride", "last"), [(4, 16, 2, False), (16, 4, 2, False), (16, 16, 2, True)]
)
def test_a_strided_1x1_convolution_of_few_channels_is_run_in_the_usual_order(inputs, outputs, stride, last):
    module, x = nn.Conv2d(inputs, outputs, 1, stride), torch.randn(2, inputs, 6, 6)
    (layer,) = trace(nn.Sequential(copy.deepcopy(module)).eval(), Inputs((x,), {})).layers
    image = x.to(memory_format=torch.channels_last).requires_grad_()
    result = apply_affine(layer, image, module.weight, module.bias)
    torch.testing.assert_close(result, module(x), rtol=1e-5, atol=1e-5)
    assert result.is_contiguous(memory_format=torch.channels_last) == last
    (slope,) = torch.autograd.grad(result.sum(), image)
    wanted = torch.zeros_like(x)
    wanted[:, :, ::stride, ::stride] = module.weight.sum(0).view(1, -1, 1, 1)
    torch.testing.assert_close(slope, wanted, rtol=1e-5, atol=1e-5)
