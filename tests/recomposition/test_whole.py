"""Slim parts in a copy of the whole: what it shares with them it still shares, and what no longer runs is refused."""

import copy
from typing import Any

import pytest
import torch
from detectors import detector, image_lists
from torch import nn

from ldrf.calibration.parts import read_parts
from ldrf.errors import LdrfError
from ldrf.recomposition.whole import check_whole, with_parts


def test_the_copy_has_the_slim_modules_and_everything_else_is_its_own():
    model: Any = detector()
    model.alias = model.backbone.conv1  # a second name
    of = read_parts(model, image_lists(1), ["backbone"], ())
    slim: Any = copy.deepcopy(of.parts)
    with torch.no_grad():
        slim.backbone.conv1.weight.zero_()
    whole: Any = with_parts(of, slim)
    assert whole.backbone is slim.backbone and whole.alias is slim.backbone.conv1
    assert whole.box[0] is not model.box[0] and torch.equal(whole.box[0].weight, model.box[0].weight)
    assert model.backbone.conv1.weight.any() and type(whole) is type(model)
    check_whole(of, whole)


def test_a_whole_that_does_not_run_or_gives_other_sizes_is_refused():
    of = read_parts(detector(), image_lists(1), ["backbone", "box"], ())
    broken: Any = copy.deepcopy(of.parts)
    broken.backbone.conv2 = nn.Conv2d(12, 7, 3, padding=1)
    with pytest.raises(LdrfError, match="does not run with its slim parts, so it is not handed out"):
        check_whole(of, with_parts(of, broken))
    narrow: Any = copy.deepcopy(of.parts)
    narrow.box[2] = nn.Linear(14, 5)
    with pytest.raises(LdrfError, match="gives other outputs than the dense one"):
        check_whole(of, with_parts(of, narrow))
