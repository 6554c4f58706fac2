"""Keys of steps: each depends on its own settings and on those before it."""

from dataclasses import replace

import pytest
import torch
from networks import Chain, images, make

import ldrf
from ldrf.inputs import Inputs
from ldrf.measuring.accuracy import measure_accuracy
from ldrf.shipping.images import split_images
from ldrf.shipping.release import Release, _InRuntime
from ldrf.shipping.steps import Steps

CONFIG = ldrf.ShipConfig(speedup=2.0, int8=True)
NAMES = ("prune", "finetune", "export", "int8", "measure")


@pytest.mark.parametrize(
    ("change", "first"),
    [
        ({"speedup": 3.0}, "prune"),
        ({"held_out": 0.5}, "prune"),
        ({"finetune": None}, "finetune"),
        ({"max_int8_drop": 2.0}, "int8"),
    ],
)
def test_a_change_is_seen_by_its_step_and_all_after(tmp_path, change, first):
    model = make(Chain)
    pictures = split_images(model, [images(8)], 0.25, 0)
    steps = Steps(tmp_path, lambda event, **data: None)
    one = Release(tmp_path, model, pictures, CONFIG, steps, "start", {})
    other = replace(one, config=replace(CONFIG, **change))
    changed = [name for name in NAMES if one.key(name) != other.key(name)]
    assert changed == list(NAMES[NAMES.index(first) :])


def test_a_file_is_called_as_its_model_is():
    model = make(Chain)

    def run(inputs: Inputs) -> torch.Tensor:
        return inputs.call(model)

    data = [(images(20), torch.arange(20) % 5)]
    assert measure_accuracy(_InRuntime(model, run), data) == measure_accuracy(model, data)
