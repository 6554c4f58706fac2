"""Functions of single values, sums and products: channels stay where they are, and operands are tied."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportOperatorIssue=false
# pyright: reportOptionalMemberAccess=false

import pytest
import torch
from torch import Tensor, nn

import ldrf
from ldrf.channels.walk import follow_channels
from ldrf.inputs import Inputs
from ldrf.tracing.trace import trace


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
