"""CIFAR-10 from a folder in any of its published forms, as uint8 tensors."""

import io
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ldrf.data.pictures import open_picture
from ldrf.errors import LdrfError
from ldrf.files.strict_json import read_bytes, read_json

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

LARGEST = 2**30  # bytes of one file; the published ones have 31 million

Split = Literal["train", "test"]


@dataclass(frozen=True)
class LabelledImages:
    """Images [n, 3, height, width] as uint8 with their labels [n]."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: slice | Tensor) -> "LabelledImages":
        return LabelledImages(self.images[rows], self.labels[rows])


def normalise(images: Tensor) -> Tensor:
    """Turn uint8 images [n, 3, h, w] into the float32 the networks were trained on."""
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (MEAN, STD))
    return (images.float() / 255 - mean) / std


def load_cifar10(folder: str | Path, split: Split) -> LabelledImages:
    """Read the 50,000 training or 10,000 test images from ``folder``.

    Three layouts are recognised: the official binary one (``*.bin``), the official Python one
    (``data_batch_1`` ...), and PNG strips of one image a row with labels in JSON.
    """
    folder = Path(folder).expanduser()
    names = [f"data_batch_{i}" for i in range(1, 6)] if split == "train" else ["test_batch"]
    for root in (folder, folder / "cifar-10-batches-bin", folder / "cifar-10-batches-py"):
        if (root / f"{names[0]}.bin").is_file():
            return _join([_read_binary(root / f"{name}.bin") for name in names])
        if (root / f"{names[0]}.png").is_file():
            return _read_strips([root / f"{name}.png" for name in names], root, split)
        if (root / names[0]).is_file():
            return _join([_read_python(root / name) for name in names])
    raise LdrfError(
        f"No CIFAR-10 {split} set in '{folder}': expected {names[0]}.bin (binary form), "
        f"{names[0]} (Python form) or {names[0]}.png (PNG strips)."
    )


def _join(parts: list[LabelledImages]) -> LabelledImages:
    return LabelledImages(torch.cat([p.images for p in parts]), torch.cat([p.labels for p in parts]))


def _checked(images: Tensor, labels: Tensor, path: Path) -> LabelledImages:
    if len(images) != len(labels):
        raise LdrfError(f"'{path}' is damaged: {len(images)} images but {len(labels)} labels.")
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < len(CLASSES):
        raise LdrfError(f"'{path}' is damaged: labels must be 0 to 9, got {int(labels.min())} to {int(labels.max())}.")
    return LabelledImages(images.contiguous(), labels.long())


def _read_binary(path: Path) -> LabelledImages:
    try:
        raw = np.frombuffer(bytearray(read_bytes(path, LARGEST)), dtype=np.uint8)
    except (OSError, ValueError) as problem:
        raise LdrfError(f"'{path}' can't be read: {problem}.") from problem
    if raw.size == 0 or raw.size % 3073:
        raise LdrfError(f"'{path}' is damaged: {raw.size} bytes are not a whole number of 3,073-byte records.")
    rows = torch.from_numpy(raw.reshape(-1, 3073))
    return _checked(rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0], path)


def _read_strips(paths: list[Path], root: Path, split: Split) -> LabelledImages:
    labels = next((f for f in root.glob(f"{split}_la*.json")), None)
    if labels is None:
        raise LdrfError(f"'{root}' has the {split} images but no {split}_labels.json beside them.")
    try:
        classes = read_json(labels)
        if not isinstance(classes, list) or not all(type(number) is int for number in classes):
            raise ValueError("a list of whole numbers was expected")
    except (OSError, ValueError) as problem:
        raise LdrfError(f"'{labels}' is not a JSON list of labels: {problem}.") from problem
    numbers = torch.tensor(classes, dtype=torch.long)
    return _checked(torch.cat([_read_strip(path) for path in paths]), numbers, labels)


def _read_strip(path: Path) -> Tensor:
    """Each row of a strip is one image, its 1,024 pixels in row-major order."""
    pixels = torch.from_numpy(np.array(open_picture(path)))
    if pixels.shape[1] != 1024:
        raise LdrfError(
            f"'{path}' is not a strip of CIFAR-10 images: 1,024 pixels wide expected, {pixels.shape[1]} found."
        )
    return pixels.reshape(-1, 32, 32, 3).permute(0, 3, 1, 2)


@dataclass
class _Array:
    """Stands for a numpy array, or its dtype, in a pickle: it notes what it is told and does nothing."""

    state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _ArraysOnly(pickle.Unpickler):
    """The Python form is a pickle: whatever it names but numpy's arrays is refused, and those are never made.

    Each call it asks for gives an :class:`_Array`, so nothing of numpy runs on what a stranger wrote.
    """

    _allowed = {"_reconstruct", "ndarray", "dtype"}

    def find_class(self, module: str, name: str) -> Any:
        if module.split(".")[0] == "numpy" and name in self._allowed:
            return lambda *_: _Array()
        raise pickle.UnpicklingError(f"{module}.{name} is not an array")


def _read_python(path: Path) -> LabelledImages:
    try:
        content = io.BytesIO(read_bytes(path, LARGEST))
        record = _ArraysOnly(content, encoding="bytes").load()
        _, shape, _, fortran, raw = record[b"data"].state
        if fortran or tuple(shape) != (len(record[b"labels"]), 3072) or not isinstance(raw, bytes):
            raise ValueError(f"its data must be bytes [{len(record[b'labels'])}, 3072]")
        images = torch.frombuffer(bytearray(raw), dtype=torch.uint8).reshape(-1, 3, 32, 32)
        labels = torch.tensor([int(label) for label in record[b"labels"]])
    except Exception as problem:
        raise LdrfError(f"'{path}' is not a CIFAR-10 batch in the Python form: {problem}.") from problem
    return _checked(images, labels, path)
