"""Chance changes images as it says, a part of a batch as in the whole, and nothing that is no image."""

import torch

from ldrf.calibration.augmentation import augment, augmented, blend, blend_shares
from ldrf.inputs import Inputs


def test_blend_lays_up_to_half_of_a_neighbour_over_some_images():
    images = torch.arange(64.0).view(64, 1, 1, 1).expand(64, 3, 2, 2)
    shares = blend_shares(torch.Generator().manual_seed(0), 0, 64)
    mixed = blend(images, shares)
    moved = (mixed - images)[1:, 0, 0, 0]  # the neighbour of each is one less than it
    torch.testing.assert_close(moved, -shares[1:])
    assert (shares >= 0).all() and (shares <= 0.5).all() and 20 <= int((shares > 0).sum()) <= 44
    assert torch.equal(mixed[:, :1].expand_as(mixed), mixed), "all of an image moves alike"


def test_a_part_of_a_batch_is_blended_in_the_shares_it_has_in_the_batch():
    images = torch.rand(16, 3, 8, 8)
    whole = augmented(Inputs((images,), {}), torch.Generator().manual_seed(1), 0, 16)
    part = augmented(Inputs((images[4:9],), {}), torch.Generator().manual_seed(1), 4, 16)
    assert whole.shares is not None and part.shares is not None
    assert torch.equal(whole.shares[4:9], part.shares)
    ours, theirs = part.inputs.args[0], whole.inputs.args[0]
    assert torch.equal(theirs[5:9], ours[1:]), "but for the first, whose neighbour is the part's last"


def test_augment_only_flips_and_shifts():
    images = torch.rand(16, 3, 8, 8)
    changed = augment(images, torch.Generator().manual_seed(0))
    assert changed.shape == images.shape and changed.is_contiguous(), "channels last are not safe everywhere: layout.py"
    for before, after in zip(images, changed, strict=True):
        known = torch.cat([before.flatten(), torch.zeros(1)])
        assert torch.isin(after, known).all()


def test_the_parts_of_a_batch_are_changed_as_in_the_whole():
    images = torch.rand(9, 3, 8, 8)
    whole = augment(images, torch.Generator().manual_seed(2))
    parts = [augment(images[a:b], torch.Generator().manual_seed(2), a, 9) for a, b in ((0, 4), (4, 4), (4, 9))]
    assert torch.equal(whole, torch.cat(parts))


def test_what_is_no_single_batch_of_images_stays_as_it_is():
    images, tokens = torch.rand(4, 3, 8, 8), torch.arange(12).view(4, 3)
    chance = torch.Generator().manual_seed(0), 0, 4
    for inputs in (Inputs((tokens,), {}), Inputs((images, images), {}), Inputs((torch.rand(4, 6),), {})):
        unchanged = augmented(inputs, *chance, blended=True)
        assert unchanged.inputs is inputs and unchanged.shares is None
    moved, mixed = (augmented(Inputs((images,), {}), *chance, blended=b).inputs.args[0] for b in (False, True))
    assert not torch.equal(moved, images) and not torch.equal(mixed, moved)
