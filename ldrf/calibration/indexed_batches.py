"""Batches whose images are read by number when asked for, so that each process reads no more than its share."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from ldrf.errors import LdrfError


@dataclass(frozen=True)
class IndexedBatches:
    """Batches ``(images, labels)`` that are made when asked for and can be gone through again."""

    read: Callable[[list[int]], Any]
    rows: tuple[int, ...]  # numbers of the images
    labelled: bool = True
    batch: int = 64

    def __len__(self) -> int:
        return -(-len(self.rows) // self.batch)

    def __iter__(self) -> Iterator[Any]:
        return map(self.read, self.listed())

    def listed(self) -> Iterator[list[int]]:
        """The numbers of the images of every batch, without reading them."""
        for start in range(0, len(self.rows), self.batch):
            yield list(self.rows[start : start + self.batch])

    def take(self, images: int | None, seed: int = 0) -> "IndexedBatches":
        """At most ``images`` of them, chosen at random but the same for the same seed."""
        _check_count(images)
        if images is None or images >= len(self.rows):
            return self
        order = torch.randperm(len(self.rows), generator=torch.Generator().manual_seed(seed))
        return replace(self, rows=tuple(self.rows[i] for i in order[:images].sort().values.tolist()))

    def split(self, share: float, seed: int = 0) -> tuple["IndexedBatches", "IndexedBatches"]:
        """All but a random share of them, and that share: at least one on either side."""
        if len(self.rows) < 2:
            raise LdrfError(f"At least 2 images are needed to set some apart. Got {len(self.rows)} instead.")
        apart = min(max(round(share * len(self.rows)), 1), len(self.rows) - 1)
        chosen = set(self.take(apart, seed).rows)
        rest = tuple(row for row in self.rows if row not in chosen)
        return replace(self, rows=rest), replace(self, rows=tuple(sorted(chosen)))

    def shuffled(self, seed: int) -> "IndexedBatches":
        """The same in an order of their own for each seed."""
        order = torch.randperm(len(self.rows), generator=torch.Generator().manual_seed(seed))
        return replace(self, rows=tuple(self.rows[i] for i in order.tolist()))

    def sized(self, batch: int) -> "IndexedBatches":
        """The same in batches of another size."""
        return replace(self, batch=batch)


def _check_count(images: int | None) -> None:
    if images is not None and images < 1:
        raise LdrfError(f"The number of images must be at least 1. Got {images} instead.")
