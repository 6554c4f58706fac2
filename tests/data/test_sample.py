"""The bundled sample is whole, balanced, and packs bit for bit."""

import json

import pytest
import torch

from ldrf.data.cifar10 import LabelledImages
from ldrf.data.sample import ASSETS, load_sample, save_sample
from ldrf.errors import LdrfError


def made(count: int, seed: int) -> LabelledImages:
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(0, 256, (count, 3, 32, 32), generator=generator, dtype=torch.uint8)
    return LabelledImages(pixels, torch.arange(count) % 10)


def test_the_bundled_sample_has_200_images_of_each_class():
    for data in load_sample():
        assert data.images.shape == (2000, 3, 32, 32) and data.images.dtype == torch.uint8
        assert data.labels.bincount().tolist() == [200] * 10


def test_the_two_halves_share_no_image():
    rows = [{bytes(image.numpy().tobytes()) for image in data.images} for data in load_sample()]
    assert not rows[0] & rows[1]


def test_the_bundled_files_stay_small():
    assert sum(f.stat().st_size for f in ASSETS.glob("cifar10_*")) < 8 * 2**20


@pytest.mark.slow
def test_packing_is_lossless(tmp_path):
    train, test = made(80, 0), made(40, 1)
    save_sample(train, test, tmp_path)
    for before, after in zip((train, test), load_sample(tmp_path), strict=True):
        assert torch.equal(before.images, after.images) and torch.equal(before.labels, after.labels)


def test_damage_is_one_sentence(tmp_path):
    with pytest.raises(LdrfError, match="is damaged .*: install ldrf again"):
        load_sample(tmp_path)
    save_sample(made(40, 0), made(40, 1), tmp_path)
    (tmp_path / "cifar10_labels.json").write_text(json.dumps({"train": [0] * 39, "test": [0] * 40}))
    with pytest.raises(LdrfError, match="does not hold 39 images"):
        load_sample(tmp_path)
    (tmp_path / "cifar10_train.webp").write_bytes(b"")
    with pytest.raises(LdrfError, match="is not a readable picture"):
        load_sample(tmp_path)
