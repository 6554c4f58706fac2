"""ImageNet-style folders of pictures, decoded batch by batch."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ldrf.data.cifar10 import Split, normalise
from ldrf.data.pictures import open_picture
from ldrf.errors import LdrfError

SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".ppm"}
RESIZE, CROP = 256, 224
LONGEST = 64 * RESIZE  # pixels of the longer side after resizing: a line of one pixel would grow to gigabytes
UNLABELLED = -1


@dataclass(frozen=True)
class PictureFiles:
    """Paths with their class numbers; nothing is decoded before it is asked for."""

    paths: tuple[Path, ...]
    labels: tuple[int, ...]
    random_crops: bool = False

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def labelled(self) -> bool:
        return UNLABELLED not in self.labels

    def read(self, rows: list[int]) -> tuple[Tensor, Tensor]:
        """Images [n, 3, 224, 224], normalised as ImageNet is, and labels [n]."""
        images = torch.stack([read_image(self.paths[row], row if self.random_crops else None) for row in rows])
        return normalise(images), torch.tensor([self.labels[row] for row in rows])


def read_image(path: Path, seed: int | None = None) -> Tensor:
    """Resize the short side to 256 and crop the centre 224 x 224, unless that is its size: uint8 [3, 224, 224].

    With a ``seed`` the crop's place is random and half of the pictures are flipped, as in training.
    """
    picture = open_picture(path)
    if picture.size != (CROP, CROP):
        width, height = picture.size
        scale = RESIZE / min(width, height)
        if max(width, height) * scale > LONGEST:
            raise LdrfError(
                f"'{path}' is {width} x {height}: a picture may be {LONGEST // RESIZE} times as long as wide."
            )
        if scale != 1:
            picture = picture.resize((round(width * scale), round(height * scale)))
        left, top = _corner(picture.width - CROP, picture.height - CROP, seed)
        picture = picture.crop((left, top, left + CROP, top + CROP))
    image = torch.from_numpy(np.array(picture)).permute(2, 0, 1)
    return image.flip(2) if seed is not None and np.random.default_rng(seed).random() < 0.5 else image


def _corner(width: int, height: int, seed: int | None) -> tuple[int, int]:
    """Left and top of the crop, in the middle or anywhere."""
    if seed is None:
        return width // 2, height // 2
    left, top = np.random.default_rng((seed, 1)).integers(0, (width + 1, height + 1))
    return int(left), int(top)


def find_pictures(folder: str | Path, split: Split) -> PictureFiles:
    """The pictures of ``folder/train`` or ``folder/val`` where there are such folders, else of ``folder`` itself."""
    root = Path(folder).expanduser()
    if not root.is_dir():
        raise LdrfError(f"No folder '{root}' to take pictures from.")
    parts = {"train": ("train",), "test": ("val", "validation", "test")}
    if any((root / name).is_dir() for names in parts.values() for name in names):
        part = next((root / name for name in parts[split] if (root / name).is_dir()), None)
        if part is None:
            raise LdrfError(f"'{root}' has no folder '{parts[split][0]}': name the folder of the pictures itself.")
        root = part
    return _list(root)


def _list(root: Path) -> PictureFiles:
    """Class folders in order of name, or the number that the name is; pictures outside of them have no label."""
    folders = sorted(p for p in root.iterdir() if p.is_dir() and not p.name.startswith("."))
    numbered = bool(folders) and all(f.name.isdecimal() and len(f.name) < 10 for f in folders)
    labelled = [(path, UNLABELLED) for path in _pictures(root)]
    for index, folder in enumerate(folders):
        labelled += [(path, int(folder.name) if numbered else index) for path in _pictures(folder)]
    if not labelled:
        raise LdrfError(f"No pictures in '{root}' or the folders in it: expected {', '.join(sorted(SUFFIXES))}.")
    return PictureFiles(tuple(path for path, _ in labelled), tuple(label for _, label in labelled))


def _pictures(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES)
