"""Images are split once: some judge, and no step learns from them."""

import pytest
import torch
from fixed_batches import Fixed, batches
from networks import Chain, images, make

from ldrf.errors import LdrfError
from ldrf.inputs import read_inputs
from ldrf.shipping.images import split_images


def rows(parts) -> set[bytes]:
    return {row.numpy().tobytes() for part in parts for row in part.tensors()[0]}


@pytest.mark.parametrize("labelled", [True, False])
def test_no_image_is_on_both_sides(labelled):
    model, x = make(Chain), images(24)
    batches = [(x[:10], torch.arange(10)), (x[10:], torch.arange(14))] if labelled else [x[:10], x[10:]]
    split = split_images(model, batches, 0.25, 0)
    learned, judged = rows(split.inputs(100)), rows(split.judged)
    picked = rows([read_inputs(model, batch) for batch in split.picking])
    assert len(judged) == len(picked) == 6 and len(learned) == 12
    assert not learned & judged and not learned & picked and not picked & judged
    assert split.fitted.labelled is labelled
    assert split.key() == split_images(model, batches, 0.25, 0).key() != split_images(model, batches, 0.25, 1).key()


def test_a_single_tensor_and_nothing():
    split = split_images(make(Chain), images(8), 0.25, 0)
    assert sum(part.rows for part in split.judged) == 2 and split.example.rows == 4
    with pytest.raises(LdrfError, match="at least one batch"):
        split_images(make(Chain), [], 0.25, 0)
    with pytest.raises(LdrfError, match="inputs of the same shapes"):
        split_images(make(Chain), [images(4), images(4, shape=(3, 6, 6))], 0.25, 0)


def test_a_model_that_fixes_its_batch_is_refused():
    with pytest.raises(LdrfError, match="Fixed takes one batch size only, and shipping makes batches of its own"):
        split_images(make(Fixed), batches(8, 3), 0.25, 0)
