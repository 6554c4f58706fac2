"""Graphs written otherwise still take any number of images, and compute the same."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportOptionalMemberAccess=false

import pytest
import torch
from networks import Uneven, images, settled
from torch import Tensor

from ldrf.inputs import Inputs
from ldrf.tracing.export import known_size
from ldrf.tracing.trace import trace

pytestmark = pytest.mark.filterwarnings("ignore:Using padding=.same. with even kernel:UserWarning")


@pytest.mark.slow
def test_padding_that_is_spelt_out_leaves_the_batch_free():
    graph = trace(settled(Uneven()), Inputs((images(4),), {}))
    maps = [n.meta["val"] for n in graph.nodes if isinstance(n.meta.get("val"), Tensor) and n.meta["val"].ndim == 4]
    assert len(maps) > 4
    assert all(known_size(value.shape[0]) is None for value in maps)


@pytest.mark.slow
def test_padding_that_is_spelt_out_has_the_size_that_padding_gives():
    graph = trace(settled(Uneven()), Inputs((images(4),), {}))
    padded = [n for n in graph.nodes if n.target is torch.ops.aten.constant_pad_nd.default]
    assert padded
    for node in padded:
        before = tuple(int(s) for s in node.args[0].meta["val"].shape[1:])
        made = torch.nn.functional.pad(torch.zeros(1, *before), node.args[1])
        assert tuple(made.shape[1:]) == tuple(int(s) for s in node.meta["val"].shape[1:])
