"""The bundled sample of CIFAR-10 (Krizhevsky 2009): enough to calibrate, to evaluate, and to test offline."""

import json
from pathlib import Path

import numpy as np
import torch

from ldrf.data.cifar10 import LabelledImages, Split
from ldrf.data.pictures import open_picture
from ldrf.errors import LdrfError

ASSETS = Path(__file__).parent / "assets"
COLUMNS = 40
SIDE = 32


def load_sample(folder: Path = ASSETS) -> tuple[LabelledImages, LabelledImages]:
    """2,000 training images to calibrate on and 2,000 test images to evaluate on, class-balanced, bit-exact."""
    try:
        labels = json.loads((folder / "cifar10_labels.json").read_text())
    except (OSError, ValueError) as problem:
        raise LdrfError(f"The bundled sample in '{folder}' is damaged ({problem}): install ldrf again.") from problem
    return _read(folder, "train", labels["train"]), _read(folder, "test", labels["test"])


def save_sample(train: LabelledImages, test: LabelledImages, folder: Path = ASSETS) -> None:
    """Pack both sets as a lossless WebP picture of 40 images a line, and their labels as JSON."""
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    sets: dict[Split, LabelledImages] = {"train": train, "test": test}
    for split, data in sets.items():
        picture = Image.fromarray(_tile(data))
        picture.save(_file(folder, split), lossless=True, quality=100, method=4, exact=True)
    text = json.dumps({split: data.labels.tolist() for split, data in sets.items()}, separators=(",", ":"))
    (folder / "cifar10_labels.json").write_text(text + "\n")


def _file(folder: Path, split: Split) -> Path:
    return folder / f"cifar10_{split}.webp"


def _tile(data: LabelledImages) -> np.ndarray:
    lines = data.images.reshape(-1, COLUMNS, 3, SIDE, SIDE).permute(0, 3, 1, 4, 2)  # [line, y, column, x, rgb]
    return lines.reshape(-1, COLUMNS * SIDE, 3).numpy()


def _read(folder: Path, split: Split, labels: list[int]) -> LabelledImages:
    pixels = torch.from_numpy(np.array(open_picture(_file(folder, split))))  # [lines * y, columns * x, rgb]
    if pixels.numel() != len(labels) * SIDE * SIDE * 3 or pixels.shape[1] != COLUMNS * SIDE:
        raise LdrfError(f"'{_file(folder, split)}' does not hold {len(labels)} images: install ldrf again.")
    images = pixels.reshape(-1, SIDE, COLUMNS, SIDE, 3).permute(0, 2, 4, 1, 3).reshape(-1, 3, SIDE, SIDE)
    return LabelledImages(images.contiguous(), torch.tensor(labels))
