"""The images of a release: most to learn from, and some that no step sees, only the final figures."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from ldrf.calibration.indexed_batches import IndexedBatches
from ldrf.errors import LdrfError
from ldrf.files.checksums import fingerprint
from ldrf.inputs import Inputs, labels_of, read_inputs

JUDGED = 32  # images per batch of those that judge


@dataclass(frozen=True)
class Images:
    """Batches to learn from and batches to judge by, of one and the same kind."""

    model: nn.Module
    fitted: IndexedBatches
    judging: IndexedBatches

    @cached_property
    def judged(self) -> list[Inputs]:
        """What judges, as the model takes it."""
        return [read_inputs(self.model, batch) for batch in self.judging.sized(JUDGED)]

    @property
    def example(self) -> Inputs:
        """The first images to learn from."""
        return read_inputs(self.model, next(iter(self.fitted)))

    def inputs(self, images: int) -> list[Inputs]:
        """At most so many images to learn from, one batch after the other."""
        part = self.fitted.take(images).sized(JUDGED)
        return [read_inputs(self.model, batch) for batch in part]

    def key(self) -> str:
        """A checksum of which images these are and of the first of them; reading all would take as long as a pass."""
        rows = [torch.tensor(part.rows) for part in (self.fitted, self.judging)]
        return fingerprint(enumerate([*rows, *self.example.tensors()]))


def split_images(model: nn.Module, batches: Iterable[Any], held_out: float, seed: int) -> Images:
    """Set a share of the images apart; batches that come as they like are put together in memory first."""
    indexed = batches if isinstance(batches, IndexedBatches) else _in_memory(model, batches)
    return Images(model, *indexed.split(held_out, seed))


def _in_memory(model: nn.Module, batches: Iterable[Any]) -> IndexedBatches:
    given = [batches] if isinstance(batches, Tensor) else list(batches)
    if not given:
        raise LdrfError("Shipping needs at least one batch of images. Got none.")
    parts = [read_inputs(model, batch) for batch in given]
    labels = [labels_of(model, batch) if not isinstance(batch, Tensor) else None for batch in given]
    known = torch.cat([found for found in labels if found is not None]) if None not in labels else None
    try:
        columns = [torch.cat(same) for same in zip(*(part.tensors() for part in parts), strict=True)]
    except (RuntimeError, ValueError) as problem:
        raise LdrfError(f"All batches must have inputs of the same shapes: {problem}.") from problem
    names = list(parts[0].kwargs)

    def read(rows: list[int]) -> Any:
        index = torch.tensor(rows)
        chosen = [column[index] for column in columns]
        if names:
            return dict(zip(names, chosen, strict=True)) | ({} if known is None else {"labels": known[index]})
        return (*chosen, known[index]) if known is not None else chosen[0] if len(chosen) == 1 else tuple(chosen)

    return IndexedBatches(read, tuple(range(len(columns[0]))), labelled=known is not None)
