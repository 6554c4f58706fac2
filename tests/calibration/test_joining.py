"""Maps of several sizes become rows of one call, and only where the same weights read them."""

import torch
from detectors import detector, image_lists
from networks import images
from torch import nn
from torch.utils import _pytree as pytree

from ldrf.calibration.joining import Joined, join, joined_parts
from ldrf.calibration.watching import Call, watch
from ldrf.inputs import Inputs


def call(*args, part="head") -> Call:
    leaves, form = pytree.tree_flatten((args, {}))
    return Call(part, tuple(leaves), form)


def test_the_head_of_a_pyramid_is_joined_and_nothing_else():
    model = detector()
    parts = {"backbone": model.backbone, "rpn.head": model.rpn["head"], "box": model.box}
    inputs = Inputs((image_lists(1)[0],), {})
    assert joined_parts(parts, watch(model, inputs, parts)) == {"rpn.head"}
    backbone, head, box = join(watch(model, inputs, parts, {"backbone", "box"}), {"rpn.head"})
    (maps,) = head.leaves
    assert isinstance(maps, Joined) and maps.size == (8, 8) and maps.times == (256 + 64) / (2 * 64)
    args, _ = pytree.tree_unflatten(head.leaves, head.form)
    assert args == ([maps],) and [c.part for c in (backbone, box)] == ["backbone", "box"]


class PerLevel(nn.Module):
    """Calls one module for every map, and another on what comes out."""

    def __init__(self):
        super().__init__()
        self.head, self.last = nn.Conv2d(3, 4, 1), nn.Linear(4, 2)

    def forward(self, x):
        return [self.last(self.head(one).mean((2, 3))) for one in (x, x[..., ::2, ::2], x[..., :1, :1])]


def test_several_calls_of_a_part_become_one_without_maps_that_are_too_small():
    model, x = PerLevel(), images(2, shape=(3, 16, 16))
    parts = {"head": model.head, "last": model.last}
    several = joined_parts(parts, watch(model, Inputs((x,), {}), parts))
    assert several == {"head", "last"}
    head, last = join(watch(model, Inputs((x,), {}), parts), several)
    (maps,) = head.leaves
    assert [tuple(t.shape) for t in maps.pieces] == [(2, 3, 16, 16), (2, 3, 8, 8)]
    rows = maps.join(list(maps.pieces))
    assert rows.shape == (4, 3, 8, 8)
    assert torch.equal(rows[0], x[0, :, 4:12, 4:12]) and torch.equal(rows[1], x[0, :, ::2, ::2])  # an example in turn
    assert len(last.leaves[0].pieces) == 3 and last.leaves[0].times == 1


def test_calls_that_differ_in_more_than_size_stay_apart():
    model = {"head": nn.Identity()}
    x = torch.randn(2, 3, 8, 8)
    for other in (call(x[:, :2]), call(x, 1), call(torch.tensor(1.0))):
        assert joined_parts(model, (call(x), other)) == set()
