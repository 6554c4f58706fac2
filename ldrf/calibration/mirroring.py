"""Twice the calibration data at no cost: every image and its mirror image, where left and right do not matter."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Mirrored:
    """Batches with every image [c, h, w] followed by its mirror image; can be gone through as often as the batches."""

    batches: Iterable[Any]

    def __iter__(self) -> Iterator[Any]:
        return map(_mirrored, self.batches)


def mirrored(batches: Iterable[Any]) -> Mirrored:
    """The same batches, each image followed by its mirror image and each label repeated.

    Least squares and descent get twice as many images of the kind the network was trained on. A pair stays together, so
    the mirror image of an image that is held out is not fitted.
    """
    return Mirrored([batches] if isinstance(batches, Tensor) else batches)


def _mirrored(value: Any) -> Any:
    """Images [n, c, h, w] and labels [n] twice as many, in whatever structure they come."""
    if isinstance(value, Tensor) and value.ndim == 4:
        return torch.stack([value, value.flip(-1)], 1).flatten(0, 1)
    if isinstance(value, Tensor) and value.ndim > 0:
        return value.repeat_interleave(2, 0)
    if isinstance(value, Mapping):
        return {key: _mirrored(part) for key, part in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(_mirrored(part) for part in value)
    return value
