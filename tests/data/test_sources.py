"""Data by name: the same batches each time, decoded when asked for."""

import contextlib
import random

import numpy as np
import pytest
import torch
from PIL import Image

from ldrf.data.imagefolder import find_pictures, read_image
from ldrf.data.sources import open_data
from ldrf.errors import LdrfError

FILE = """
import torch
def once(split):
    for start in range(0, 12, 4):
        yield {"x": torch.arange(start, start + 4), "labels": torch.zeros(4)}
def again(split):
    return [torch.arange(4), torch.arange(4, 8)]
def number(split):
    return 3
"""


def picture(path, size=(300, 260), colour=(255, 0, 0)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


def test_the_sample_is_read_in_batches_that_can_be_gone_through_twice():
    batches = open_data("sample", "test").take(100, seed=1)
    first, second = ([images for images, _ in batches] for _ in range(2))
    assert [len(x) for x in first] == [64, 36]
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    other = open_data("sample", "test").take(100, seed=2)
    assert not torch.equal(first[0], next(iter(other))[0])


def test_taking_more_than_there_are_gives_all():
    assert sum(len(labels) for _, labels in open_data("sample", "train").take(9999)) == 2000


def test_a_factory_gives_batches_up_to_a_number_of_images(tmp_path):
    (tmp_path / "d.py").write_text(FILE)
    batches = open_data(f"{tmp_path}/d.py:once", "train").take(6)
    for _ in range(2):  # a generator, started anew
        assert torch.cat([b["x"] for b in batches if isinstance(b, dict)]).tolist() == list(range(6))
    assert torch.cat(list(open_data(f"{tmp_path}/d.py:again", "train"))).tolist() == list(range(8))
    with pytest.raises(LdrfError, match="must return an iterable of batches. Got int"):
        open_data(f"{tmp_path}/d.py:number", "train")


@pytest.mark.parametrize("name", ["", "cifar10", "imagefolder:", "mnist", "file.txt:f"])
def test_unknown_names_say_what_was_expected(name):
    with pytest.raises(LdrfError, match="[Ee]xpected .*'cifar10:folder'"):
        open_data(name, "test")


def test_image_folders_have_splits_and_classes(tmp_path):
    picture(tmp_path / "train" / "cat" / "a.png")
    picture(tmp_path / "train" / "dog" / "b.jpg", size=(64, 400))
    picture(tmp_path / "val" / "dog" / "c.png", size=(224, 224), colour=(0, 255, 0))
    images, labels = next(iter(open_data(f"imagefolder:{tmp_path}", "train")))
    assert images.shape == (2, 3, 224, 224) and labels.tolist() == [0, 1]
    red = (torch.tensor([1.0, 0.0, 0.0]) - torch.tensor([0.485, 0.456, 0.406])) / torch.tensor([0.229, 0.224, 0.225])
    assert torch.allclose(images[0, :, 100, 100], red)
    assert find_pictures(tmp_path, "test").paths == (tmp_path / "val" / "dog" / "c.png",)
    assert find_pictures(tmp_path / "train", "test").labels == (0, 1)


def test_numbered_class_folders_keep_their_numbers(tmp_path):
    for name in ("0007", "0123"):
        picture(tmp_path / name / "a.png")
    assert find_pictures(tmp_path, "test").labels == (7, 123)


def test_pictures_outside_of_class_folders_have_no_labels(tmp_path):
    picture(tmp_path / "a.png")
    batches = open_data(f"imagefolder:{tmp_path}", "train")
    assert not batches.labelled and len(list(batches)) == 1


def test_the_centre_is_cropped(tmp_path):
    canvas = Image.new("RGB", (256, 512), (0, 0, 0))
    canvas.paste((255, 255, 255), (16, 144, 240, 368))  # the centre 224 x 224
    canvas.save(tmp_path / "a.png")
    assert read_image(tmp_path / "a.png").min() == 255


def test_wrong_image_folders_are_one_sentence(tmp_path):
    with pytest.raises(LdrfError, match="No folder"):
        find_pictures(tmp_path / "none", "train")
    with pytest.raises(LdrfError, match="No pictures in"):
        find_pictures(tmp_path, "train")
    picture(tmp_path / "val" / "x" / "a.png")
    with pytest.raises(LdrfError, match="has no folder 'train'"):
        find_pictures(tmp_path, "train")
    (tmp_path / "val" / "x" / "b.png").write_bytes(b"no picture")
    with pytest.raises(LdrfError, match=r"b\.png' is not a readable picture"):
        list(open_data(f"imagefolder:{tmp_path}", "test"))


def test_a_picture_is_known_by_its_content_and_only_a_few_kinds_are(tmp_path):
    """PostScript, for one, is a program: Pillow would start an interpreter for it."""
    (tmp_path / "a.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EOF\n")
    with pytest.raises(LdrfError, match="is not a readable picture"):
        read_image(tmp_path / "a.png")
    Image.new("RGB", (9, 9)).save(tmp_path / "b.gif")
    (tmp_path / "b.gif").rename(tmp_path / "b.png")
    with pytest.raises(LdrfError, match="is not a readable picture"):
        read_image(tmp_path / "b.png")


def test_pictures_that_would_fill_the_memory_are_refused(tmp_path):
    Image.new("1", (30_000, 1)).save(tmp_path / "line.png")  # 256 x 7,680,000 pixels after resizing
    with pytest.raises(LdrfError, match="is 30000 x 1: a picture may be 64 times as long as wide"):
        read_image(tmp_path / "line.png")
    header = b"P6 20000 20000 255\n"
    (tmp_path / "bomb.ppm").write_bytes(header + bytes(100))
    with pytest.raises(LdrfError, match="is not a readable picture: Image size .* exceeds limit"):
        read_image(tmp_path / "bomb.ppm")
    (tmp_path / "bomb.ppm").write_bytes(b"P6 10000 9900 255\n" + bytes(100))  # Pillow only warns of this one
    with pytest.raises(LdrfError, match="is not a readable picture: Image size .* exceeds limit"):
        read_image(tmp_path / "bomb.ppm")


@pytest.mark.parametrize("suffix", ["png", "jpg", "webp", "bmp", "ppm"])
def test_damaged_pictures_are_one_sentence(tmp_path, suffix):
    rng, path = random.Random(suffix), tmp_path / f"a.{suffix}"
    pixels = np.random.default_rng(0).integers(0, 255, (16, 24, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    whole = path.read_bytes()
    for _ in range(40):
        content = bytearray(whole[: rng.randrange(1, len(whole) + 1)])
        for _ in range(3):
            content[rng.randrange(len(content))] = rng.randrange(256)
        path.write_bytes(content)
        with contextlib.suppress(LdrfError):
            assert read_image(path).shape == (3, 224, 224)


def test_class_folders_with_numbers_beyond_counting_are_names(tmp_path):
    for name in ("7" * 30, "1"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (224, 224)).save(tmp_path / name / "a.png")
    assert find_pictures(tmp_path, "test").labels == (0, 1)
