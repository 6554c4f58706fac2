"""Rows of a layer's input times its weight are rows of its output; a sample of them depends on the image alone."""

import copy

import pytest
import torch
from torch import nn

from ldrf.inputs import Inputs
from ldrf.tracing.interpreter import folded
from ldrf.tracing.patches import count_columns, count_rows, input_rows, output_rows, sample_positions
from ldrf.tracing.trace import trace

MODULES = {
    "linear": (nn.Linear(4, 6), (5, 4)),
    "pointwise": (nn.Conv2d(4, 6, 1, stride=2), (4, 5, 6)),
    "conv": (nn.Conv2d(4, 6, (3, 2), stride=2, padding=1, dilation=(1, 2)), (4, 9, 8)),
    "sequence": (nn.Conv1d(4, 6, 3), (4, 9)),
    "transposed": (nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1), (4, 5, 5)),
}


@pytest.mark.parametrize("name", MODULES)
def test_rows_times_weights_are_the_layers_outputs(name: str):
    module, shape = MODULES[name]
    x, model = torch.randn(3, *shape), nn.Sequential(copy.deepcopy(module)).eval()
    graph = trace(model, Inputs((x,), {}))
    (layer,) = graph.layers
    weight, bias = folded(graph, model).affine(layer.node)
    rows = input_rows(layer, x, None)
    assert rows.shape == (count_rows(layer, x), count_columns(layer))
    expected = output_rows(layer, model(x), None)
    torch.testing.assert_close(rows @ weight.flatten(1).T + bias, expected, rtol=1e-4, atol=1e-5)
    picked = torch.tensor([0, 2, len(rows) - 1])
    assert torch.equal(input_rows(layer, x, picked), rows[picked])
    assert torch.equal(output_rows(layer, model(x), picked), expected[picked])


def test_what_is_sampled_of_an_image_does_not_depend_on_its_neighbours():
    alone = sample_positions(50, range(7, 8), 4, seed=3)
    among = sample_positions(150, range(6, 9), 4, seed=3)
    other = sample_positions(50, range(7, 8), 4, seed=4)
    assert alone is not None and among is not None and other is not None
    assert torch.equal(among[4:8] - 50, alone) and len(set(among.tolist())) == 12
    assert not torch.equal(alone, other)


def test_few_rows_are_all_taken():
    assert sample_positions(12, range(3), 4, seed=0) is None
