"""CIFAR-10 is read alike from its three forms, and damage is named."""

import contextlib
import json
import pickle
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from ldrf.data.cifar10 import LabelledImages, load_cifar10, normalise
from ldrf.errors import LdrfError

TRAIN = [f"data_batch_{i}" for i in range(1, 6)]


def images(count: int, seed: int) -> LabelledImages:
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(0, 256, (count, 3, 32, 32), generator=generator, dtype=torch.uint8)
    return LabelledImages(pixels, torch.randint(0, 10, (count,), generator=generator))


PARTS = {name: images(3, seed) for seed, name in enumerate([*TRAIN, "test_batch"])}


def write_binary(folder: Path) -> None:
    for name, part in PARTS.items():
        rows = torch.cat([part.labels.to(torch.uint8).view(-1, 1), part.images.flatten(1)], dim=1)
        (folder / f"{name}.bin").write_bytes(rows.numpy().tobytes())


def write_python(folder: Path) -> None:
    for name, part in PARTS.items():
        record = {b"data": part.images.flatten(1).numpy(), b"labels": part.labels.tolist()}
        (folder / name).write_bytes(pickle.dumps(record, protocol=4))


def write_strips(folder: Path) -> None:
    for name, part in PARTS.items():
        pixels = part.images.permute(0, 2, 3, 1).reshape(len(part), 1024, 3).numpy()
        Image.fromarray(pixels).save(folder / f"{name}.png")
    labels = [label for name in TRAIN for label in PARTS[name].labels.tolist()]
    (folder / "train_lables.json").write_text(json.dumps(labels))  # spelled so where it is published
    (folder / "test_labels.json").write_text(json.dumps(PARTS["test_batch"].labels.tolist()))


@pytest.mark.parametrize("write", [write_binary, write_python, write_strips])
@pytest.mark.parametrize("split", ["train", "test"])
def test_all_forms_read_alike(tmp_path, write, split):
    write(tmp_path)
    names = TRAIN if split == "train" else ["test_batch"]
    found = load_cifar10(tmp_path, split)
    assert torch.equal(found.images, torch.cat([PARTS[name].images for name in names]))
    assert torch.equal(found.labels, torch.cat([PARTS[name].labels for name in names]))
    assert found.images.dtype == torch.uint8 and found.labels.dtype == torch.long


@pytest.mark.parametrize(
    ("write", "name"), [(write_binary, "cifar-10-batches-bin"), (write_python, "cifar-10-batches-py")]
)
def test_the_archives_own_folder_is_found(tmp_path, write, name):
    (tmp_path / name).mkdir()
    write(tmp_path / name)
    assert len(load_cifar10(tmp_path, "test")) == 3


def test_an_empty_folder_says_what_was_expected(tmp_path):
    with pytest.raises(LdrfError, match=r"No CIFAR-10 test set in .*test_batch\.bin"):
        load_cifar10(tmp_path, "test")


def test_a_truncated_binary_file_is_refused(tmp_path):
    write_binary(tmp_path)
    path = tmp_path / "data_batch_3.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(LdrfError, match=r"data_batch_3\.bin' is damaged: 9218 bytes"):
        load_cifar10(tmp_path, "train")


def test_a_missing_part_is_named(tmp_path):
    write_binary(tmp_path)
    (tmp_path / "data_batch_4.bin").unlink()
    with pytest.raises(LdrfError, match=r"data_batch_4\.bin' can't be read"):
        load_cifar10(tmp_path, "train")


def test_labels_beyond_nine_are_refused(tmp_path):
    (tmp_path / "test_batch.bin").write_bytes(bytes([77]) + bytes(3072))
    with pytest.raises(LdrfError, match="labels must be 0 to 9, got 77 to 77"):
        load_cifar10(tmp_path, "test")


@pytest.mark.parametrize("content", [b"", b"not a pickle", pickle.dumps({b"data": 3}, protocol=4)])
def test_a_damaged_python_file_is_refused(tmp_path, content):
    (tmp_path / "test_batch").write_bytes(content)
    with pytest.raises(LdrfError, match="is not a CIFAR-10 batch in the Python form"):
        load_cifar10(tmp_path, "test")


class Harmful:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return (Path.touch, (self.marker,))


def test_a_python_file_cannot_run_code(tmp_path):
    marker = tmp_path / "was run"
    (tmp_path / "test_batch").write_bytes(pickle.dumps(Harmful(marker), protocol=4))
    with pytest.raises(LdrfError, match="is not an array"):
        load_cifar10(tmp_path, "test")
    assert not marker.exists()


@pytest.mark.parametrize("seed", range(60))
def test_a_mutated_python_file_is_refused_or_right(tmp_path, seed):
    write_python(tmp_path)
    rng, content = random.Random(seed), bytearray((tmp_path / "test_batch").read_bytes())
    for _ in range(rng.choice([1, 3])):
        content[rng.choice([rng.randrange(150), rng.randrange(len(content))])] = rng.randrange(256)
    (tmp_path / "test_batch").write_bytes(content)
    with contextlib.suppress(LdrfError):
        found = load_cifar10(tmp_path, "test")
        assert found.images.shape[1:] == (3, 32, 32) and found.images.dtype == torch.uint8
        assert len(found.labels) == len(found.images) and int(found.labels.max()) < 10


@pytest.mark.parametrize(
    "record",
    [
        {b"data": np.zeros((3, 3072), np.float32), b"labels": [1, 2, 3]},
        {b"data": np.zeros((3, 3000), np.uint8), b"labels": [1, 2, 3]},
        {b"data": np.zeros((3, 3072), np.uint8), b"labels": [1, 2, "x"]},
        {b"data": np.zeros((3, 3072), np.uint8), b"labels": 7},
        {b"data": np.array([Path("x")], dtype=object), b"labels": [1]},
        [1, 2, 3],
    ],
)
def test_a_python_file_of_something_else_is_refused(tmp_path, record):
    (tmp_path / "test_batch").write_bytes(pickle.dumps(record, protocol=4))
    with pytest.raises(LdrfError, match="is not a CIFAR-10 batch in the Python form|12 images but 3 labels"):
        load_cifar10(tmp_path, "test")


def test_a_damaged_strip_is_refused(tmp_path):
    write_strips(tmp_path)
    path = tmp_path / "test_batch.png"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(LdrfError, match="is not a readable picture"):
        load_cifar10(tmp_path, "test")


def test_a_picture_of_another_width_is_no_strip(tmp_path):
    write_strips(tmp_path)
    Image.fromarray(np.zeros((3, 99, 3), dtype=np.uint8)).save(tmp_path / "test_batch.png")
    with pytest.raises(LdrfError, match="1,024 pixels wide expected, 99 found"):
        load_cifar10(tmp_path, "test")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[1, 2]", "3 images but 2 labels"),
        ("[1, 2, 10]", "labels must be 0 to 9, got 1 to 10"),
        *((text, "is not a JSON list of labels") for text in ("{", "[" * 99_999, "[[1], [2], [3]]", "[1, 2.5, 3]")),
        *((text, "is not a JSON list of labels") for text in ('["a"]', '{"a": 1}', "3", "[1, 2, " + "9" * 99 + "]")),
    ],
)
def test_wrong_labels_are_refused(tmp_path, text, words):
    write_strips(tmp_path)
    (tmp_path / "test_labels.json").write_text(text)
    with pytest.raises(LdrfError, match=words):
        load_cifar10(tmp_path, "test")


def test_strips_without_labels_are_refused(tmp_path):
    write_strips(tmp_path)
    (tmp_path / "test_labels.json").unlink()
    with pytest.raises(LdrfError, match=r"no test_labels\.json beside them"):
        load_cifar10(tmp_path, "test")


def test_normalise_gives_zero_mean_at_the_mean_colour():
    pixels = torch.tensor([0.485, 0.456, 0.406]).mul(255).round().to(torch.uint8).view(1, 3, 1, 1)
    assert normalise(pixels).abs().max() < 0.01
