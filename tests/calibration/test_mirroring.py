"""Mirrored batches: every image is followed by its mirror image, whatever form the batch has."""

import torch
from networks import Chain, images, make

import ldrf
from ldrf.calibration.mirroring import mirrored
from ldrf.inputs import chunked


def test_pairs_stand_together_and_labels_follow():
    x, y = images(6), torch.arange(6)
    (pixels, labels), *rest = list(mirrored([(x, y)]))
    assert not rest and labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert torch.equal(pixels[::2], x) and torch.equal(pixels[1::2], x.flip(-1))


def test_every_form_of_batch_is_understood():
    x = images(3)
    assert torch.equal(next(iter(mirrored([x])))[::2], x)
    assert next(iter(mirrored(x))).shape == (6, *x.shape[1:])
    found = next(iter(mirrored([{"pixels": x, "name": "a", "ids": torch.arange(3)}])))
    assert found["pixels"].shape[0] == 6 and found["name"] == "a" and found["ids"].tolist() == [0, 0, 1, 1, 2, 2]


def test_a_chunk_holds_whole_pairs():
    batches = mirrored([images(10, seed=s) for s in range(3)])
    for chunk in chunked(make(Chain), batches, 8):
        pixels = chunk.args[0]
        assert torch.equal(pixels[1::2], pixels[::2].flip(-1))
    assert len(list(batches)) == len(list(batches)) == 3  # and it can be gone through again


def test_pruning_sees_twice_the_images():
    result = ldrf.prune(
        make(Chain), mirrored([images(12)]), widths={"conv1": 6}, config=ldrf.PruneConfig(solver="closed-form")
    )
    assert result.images == 24 and result.widths["conv1"] == 6
