"""Models are pruned as they are inside their wrappers: same names, same class."""

# pyright: reportArgumentType=false

import pytest
import torch
from networks import Chain, images, make
from torch import nn

import ldrf
from ldrf.tracing.wrappers import unwrapped


def test_wrappers_are_taken_off_in_any_order():
    model = make(Chain)
    compiled = torch.compile(model, backend="eager")
    assert all(unwrapped(m) is model for m in (model, compiled, nn.DataParallel(model), nn.DataParallel(compiled)))
    assert unwrapped(torch.compile(nn.DataParallel(model), backend="eager")) is model


@pytest.mark.slow
def test_a_wrapped_model_is_pruned_saved_and_loaded_as_the_plain_class(tmp_path):
    config = ldrf.PruneConfig(steps=2, joint_steps=2)
    model = nn.DataParallel(torch.compile(make(Chain), backend="eager"))
    result = ldrf.prune(model, [images(12)], widths={"conv1": 5}, config=config)
    assert type(result.model) is Chain and type(model) is nn.DataParallel
    loaded = ldrf.load(ldrf.save(result, tmp_path / "slim"), make(Chain, 1))
    assert torch.equal(loaded(images(3)), result.model(images(3)))
