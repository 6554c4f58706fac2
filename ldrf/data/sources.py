"""Data by name, as the command line takes it: images to calibrate on and labelled images to evaluate on."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ldrf.calibration.indexed_batches import IndexedBatches, _check_count
from ldrf.data.cifar10 import MEAN, STD, LabelledImages, Split, load_cifar10, normalise
from ldrf.data.imagefolder import CROP, RESIZE, PictureFiles, find_pictures
from ldrf.data.plugins import call_factory, is_factory
from ldrf.data.sample import load_sample
from ldrf.errors import LdrfError

FORMS = "'sample', 'cifar10:folder', 'imagefolder:folder' or 'path/to/file.py:factory'"


@dataclass(frozen=True)
class FirstBatches:
    """The batches of the user's own iterable, up to a number of images."""

    batches: Iterable[Any]
    images: int | None = None
    labelled: bool = True

    def __iter__(self) -> Iterator[Any]:
        left = self.images
        for batch in self.batches:
            if left is None:
                yield batch
                continue
            part = _head(batch, left)
            left -= _rows(part)
            yield part
            if left <= 0:
                return

    def take(self, images: int | None, seed: int = 0) -> "FirstBatches":
        """At most the first ``images`` of them."""
        _check_count(images)
        del seed
        return replace(self, images=images)


@dataclass(frozen=True)
class _Remade:
    """A generator that starts anew each time it is gone through."""

    make: Callable[[], Iterable[Any]]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.make())


Batches = IndexedBatches | FirstBatches


def open_data(name: str, split: Split, random_crops: bool = False) -> Batches:
    """The training images of the named data (to calibrate on) or its test images (to evaluate on).

    ``random_crops`` takes crops of pictures in an image folder at random, half of them flipped, instead of the centre.
    """
    kind, _, folder = name.partition(":")
    if name == "sample" or kind == "cifar10":
        return _from_arrays(open_cifar10(name, split))
    if kind == "imagefolder" and folder:
        return _from_files(replace(find_pictures(folder, split), random_crops=random_crops))
    if is_factory(name):
        return FirstBatches(_from_factory(name, split))
    raise LdrfError(f"Unknown data '{name}': expected {FORMS}.")


def picture_making(name: str) -> dict[str, Any] | None:
    """How a picture becomes an input of the named data: the short side's size, the crop, mean and deviation."""
    kind = name.partition(":")[0]
    sizes = {"sample": (32, 32), "cifar10": (32, 32), "imagefolder": (RESIZE, CROP)}.get(kind)
    if sizes is None:
        return None
    return {"resize": sizes[0], "crop": sizes[1], "mean": list(MEAN), "std": list(STD)}


def open_cifar10(name: str, split: Split) -> LabelledImages:
    """The images that ``sample`` or ``cifar10:folder`` name, as arrays."""
    kind, _, folder = name.partition(":")
    if name == "sample":
        return load_sample()[0 if split == "train" else 1]
    if kind == "cifar10" and folder:
        return load_cifar10(folder, split)
    raise LdrfError(f"Expected CIFAR-10 as 'cifar10:folder' or 'sample'. Got '{name}' instead.")


def _from_arrays(data: LabelledImages) -> IndexedBatches:
    def read(rows: list[int]) -> tuple[Tensor, Tensor]:
        part = data[torch.tensor(rows)]
        return normalise(part.images), part.labels

    return IndexedBatches(read, tuple(range(len(data))))


def _from_files(files: PictureFiles) -> IndexedBatches:
    return IndexedBatches(files.read, tuple(range(len(files))), labelled=files.labelled, batch=32)


def _from_factory(name: str, split: Split) -> Iterable[Any]:
    made = call_factory(name, split)
    if not isinstance(made, Iterable):
        raise LdrfError(f"'{name}' must return an iterable of batches. Got {type(made).__name__} instead.")
    return _Remade(lambda: call_factory(name, split)) if isinstance(made, Iterator) else made


def _map(batch: Any, change: Callable[[Tensor], Any]) -> Any:
    if isinstance(batch, Tensor):
        return change(batch)
    if isinstance(batch, Mapping):
        return {key: _map(value, change) for key, value in batch.items()}
    if isinstance(batch, Sequence) and not isinstance(batch, str):
        return tuple(_map(value, change) for value in batch)
    return batch


def _head(batch: Any, rows: int) -> Any:
    return _map(batch, lambda t: t[:rows] if t.ndim else t)


def _rows(batch: Any) -> int:
    counts: list[int] = []
    _map(batch, lambda t: counts.append(len(t) if t.ndim else 1))
    return counts[0] if counts else 1
