"""Views, splits and slices: each index keeps its channel, equal parts make one neuron of several channels."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportOperatorIssue=false
# pyright: reportOptionalMemberAccess=false

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given
from hypothesis import strategies as st
from networks import Between, flow_of

from ldrf.channels.walk import follow_channels
from ldrf.inputs import Inputs
from ldrf.tracing.trace import trace


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


@pytest.mark.parametrize("whole", [lambda x: x.chunk(1, 1)[0], lambda x: x.split(6, 1)[0]])
def test_a_split_into_one_part_changes_nothing(whole):
    _, flow = flow_of(whole)
    ((ids, why),) = flow.frozen
    assert why == "it is an output of the model" and len(set(flow.roots(ids))) == 6
