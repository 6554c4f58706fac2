"""What parts read while the whole model runs, and how a batch is read by trying."""

import pytest
import torch
from detectors import detector, image_lists
from networks import images
from torch import nn

from ldrf.calibration.watching import Call, Made, check_plain, find_reading, watch
from ldrf.errors import LdrfError
from ldrf.inputs import Inputs

MODEL, LISTS = detector(), image_lists(2)


@pytest.mark.parametrize("batch", [LISTS[0], tuple(LISTS[0]), (LISTS[0], [{}] * 4), {"images": LISTS[0]}])
def test_a_list_of_images_is_one_argument_however_it_comes(batch):
    inputs = find_reading(MODEL, batch).inputs(MODEL, batch)
    (given,) = (*inputs.args, *inputs.kwargs.values())
    assert all(a is b for a, b in zip(given, LISTS[0], strict=True))


def test_images_and_labels_are_read_as_ever():
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 2))
    for batch in ((images(3), torch.arange(3)), [images(3), images(3)], images(3)):
        assert [len(v) for v in find_reading(model, batch).inputs(model, batch).args] == [3]


def test_a_batch_the_model_cannot_take_is_told():
    with pytest.raises(LdrfError, match=r"Detector cannot take a calibration batch: images must be"):
        find_reading(MODEL, images(3).unsqueeze(1))


def test_what_a_part_made_is_linked_and_what_it_reads_is_copied():
    inputs = Inputs((LISTS[0],), {})
    parts = {"backbone": MODEL.backbone, "rpn.head": MODEL.rpn["head"]}
    backbone, head = watch(MODEL, inputs, parts, parts.keys())
    assert torch.equal(backbone.leaves[0], torch.stack(LISTS[0]))
    assert head.leaves == (Made(0, 0, (8, 16, 16)), Made(0, 1, (8, 8, 8)))
    alone = watch(MODEL, inputs, parts)[1].leaves
    assert [tuple(t.shape) for t in alone] == [(4, 8, 16, 16), (4, 8, 8, 8)]
    assert not MODEL.backbone._forward_hooks and not MODEL.backbone._forward_pre_hooks


class InPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.second(self.first(x).relu_())


def test_a_tensor_that_was_changed_since_is_no_link():
    model, x = InPlace(), torch.randn(5, 3)
    calls = watch(model, Inputs((x,), {}), {"first": model.first, "second": model.second}, ("first",))
    assert torch.equal(calls[1].leaves[0], model.first(x).relu())


def test_objects_are_refused():
    with pytest.raises(LdrfError, match="The part 'rpn' reads a object: a part must read tensors"):
        check_plain((Call("rpn", (object(),), None),))  # type: ignore[arg-type]
