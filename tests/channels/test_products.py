"""Matrix products and attention: what passes, what is tied, what ends in pairs, and how much work goes with it."""

# pyright: reportAttributeAccessIssue=false

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ldrf.channels.walk import follow_channels
from ldrf.inputs import Inputs
from ldrf.tracing.counting import count_macs
from ldrf.tracing.trace import trace

TOKENS, WIDTH = 5, 6


class Attends(nn.Module):
    """Queries, keys and values of three layers, in ``heads`` heads, fused or as two products."""

    def __init__(self, heads: int = 1, fused: bool = True) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(4, WIDTH) for _ in range(3))
        self.heads, self.fused = heads, fused

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(2, (self.heads, -1)).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (self.split(layer(x)) for layer in (self.q, self.k, self.v))
        if self.fused:
            return F.scaled_dot_product_attention(q, k, v)
        return (q @ k.transpose(-1, -2)).softmax(-1) @ v


def walked(model: nn.Module, outer: int | None = None):
    graph = trace(model.eval(), Inputs((torch.randn(2, TOKENS, 4),), {}))
    flow = follow_channels(graph)
    if outer is not None:
        flow = follow_channels(graph, dict.fromkeys(flow.split, outer))
    return graph, flow


@pytest.mark.parametrize("fused", [True, False])
def test_widths_of_values_pass_and_those_of_queries_and_keys_end_in_pairs(fused):
    graph, flow = walked(Attends(fused=fused))
    q, k, v = (flow.roots(ids) for ids in flow.produced.values())
    assert np.array_equal(q, k) and not set(q) & set(v)
    passed = flow.values[graph.outputs[0]]
    assert passed.dim == 3 and np.array_equal(flow.roots(passed.ids), v)
    ((scores, ids),) = flow.compared
    assert np.array_equal(flow.roots(ids), q) and scores.key_is_transposed is not fused


def test_whole_heads_of_queries_keys_and_values_go_together():
    graph, flow = walked(Attends(heads=3), outer=-2)
    q, k, v = (flow.roots(ids) for ids in flow.produced.values())
    assert np.array_equal(q, k) and np.array_equal(k, v) and len(set(v)) == 3
    assert flow.values[graph.outputs[0]].dim == 1 and not flow.compared


@pytest.mark.parametrize("fused", [True, False])
def test_the_work_of_products_is_what_is_counted_beside_the_layers(fused):
    model = Attends(fused=fused)
    _, flow = walked(model)
    layers = 3 * TOKENS * 4 * WIDTH
    counted = count_macs(model, Inputs((torch.randn(1, TOKENS, 4),), {}))
    assert sum(macs for macs, _ in flow.work) == pytest.approx(counted - layers)


class Gram(nn.Module):
    """Channels compared with each other: a product that sums over positions."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Linear(4, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        return x.transpose(1, 2) @ x


def test_one_layer_as_rows_and_columns_at_once_keeps_its_width():
    graph, flow = walked(Gram())
    assert graph.outputs[0] not in flow.values
    assert any("matmul" in reason or "bmm" in reason for _, reason in flow.frozen)
