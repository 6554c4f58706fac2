"""Calls are known by the name of their operator, and their arguments by the names in its schema."""

import pytest
import torch
from torch import Tensor, nn

from ldrf.inputs import Inputs
from ldrf.tracing.operations import bound_args, operation, same_padding, source_of, spread
from ldrf.tracing.trace import trace


class Calls(nn.Module):
    """A linear layer with its weight stored inputs first, a norm with two results, and a split."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(4, 6)), nn.Parameter(torch.randn(6))

    def forward(self, x: Tensor) -> Tensor:
        one, two = torch.addmm(self.bias, x, self.weight).split(3, dim=1)
        return one.relu() * two


def test_names_have_no_overload_and_picks_have_a_name_of_their_own():
    nodes = trace(Calls().eval(), Inputs((torch.randn(2, 4),), {})).nodes
    assert [operation(node) for node in nodes if "split" not in operation(node)] == [
        "aten.addmm",
        "getitem",
        "getitem",
        "aten.relu",
        "aten.mul",
    ]


def test_an_addmm_is_bound_like_a_linear_layer():
    graph = trace(Calls().eval(), Inputs((torch.randn(2, 4),), {}))
    call = graph.nodes[0]
    arguments = bound_args(call)
    assert [graph.names.get(arguments[name].name) for name in ("weight", "bias")] == ["weight", "bias"]
    assert source_of(call) == arguments["input"].name == graph.inputs[0]


@pytest.mark.parametrize(("value", "dims", "wide"), [(2, 3, (2, 2, 2)), ([2], 2, (2, 2)), ((1, 2), 2, (1, 2))])
def test_one_number_stands_for_every_dimension(value, dims, wide):
    assert spread(value, dims) == wide


@pytest.mark.parametrize(("kernel", "dilation"), [((3, 3), 1), ((5, 2), 1), ((3, 4), 2)])
@pytest.mark.filterwarnings("ignore:Using padding=.same. with even kernel:UserWarning")
def test_same_padding_keeps_the_size_of_a_map(kernel, dilation):
    x, weight = torch.randn(1, 1, 9, 9), torch.randn(1, 1, *kernel)
    rows, columns = same_padding({"dilation": dilation}, kernel, 2)
    padded = nn.functional.pad(x, (0, columns, 0, rows))
    kept = nn.functional.conv2d(padded, weight, dilation=dilation)
    assert kept.shape == nn.functional.conv2d(x, weight, padding="same", dilation=dilation).shape == x.shape
