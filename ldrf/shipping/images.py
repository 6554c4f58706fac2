"""The images of a release: most to learn from, some to pick the best epoch by, and some for the final figures alone."""

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
from ldrf.runtime.device import model_device
from ldrf.tracing.batch_sizes import takes, takes_any_batch
from ldrf.tracing.export import working_copy

JUDGED = 32  # images per batch of those that judge


@dataclass(frozen=True)
class Images:
    """Batches to learn from, to pick an epoch of fine-tuning by, and to judge by.

    A slim network is nearer to the dense one on images that it was solved on than on others. Judged by those,
    fine-tuning would seem to lose: so it is judged by images that the prune did not see.
    """

    model: nn.Module
    fitted: IndexedBatches
    picking: IndexedBatches
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
        rows = [torch.tensor(part.rows) for part in (self.fitted, self.picking, self.judging)]
        return fingerprint(enumerate([*rows, *self.example.tensors()]))


def split_images(model: nn.Module, batches: Iterable[Any], held_out: float, seed: int) -> Images:
    """Set two shares of the images apart; batches that come as they like are put together in memory first."""
    indexed = batches if isinstance(batches, IndexedBatches) else _in_memory(model, batches)
    rest, judging = indexed.split(held_out, seed)
    fitted, picking = rest.split(min(held_out * len(indexed.rows) / len(rest.rows), 0.5), seed + 1)
    return Images(model, fitted, picking, judging)


def _check_sizes(model: nn.Module, batch: Inputs) -> None:
    """Raise for a model that takes one batch size only: shipping divides the images in its own way."""
    copied = working_copy(model)  # norms of the user's own may follow what they read
    if takes(copied, batch) and not takes_any_batch(copied, batch):
        raise LdrfError(
            f"{type(model).__name__} takes one batch size only, and shipping makes batches of its own: call ldrf.prune "
            "and ldrf.export with batches of that size."
        )


def _in_memory(model: nn.Module, batches: Iterable[Any]) -> IndexedBatches:
    given = [batches] if isinstance(batches, Tensor) else list(batches)
    if not given:
        raise LdrfError("Shipping needs at least one batch of images. Got none.")
    parts = [read_inputs(model, batch) for batch in given]
    _check_sizes(model, parts[0].to(model_device(model)))
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
