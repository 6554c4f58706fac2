"""Images to fine-tune on: from whatever a data loader yields to inputs and labels, held in memory."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from ldrf.calibration.indexed_batches import IndexedBatches
from ldrf.errors import LdrfError
from ldrf.files.checksums import fingerprint
from ldrf.inputs import Inputs, labels_of, read_inputs
from ldrf.runtime.processes import check_same, count, rank, share


@dataclass(frozen=True)
class Sample:
    """The inputs of one step, and their labels where these are wanted."""

    inputs: Inputs
    labels: Tensor | None


def read_sample(model: nn.Module, batch: Any, labelled: bool) -> Sample:
    """What ``model`` takes of a batch, and its labels if they are wanted; without labels then is an error."""
    if isinstance(batch, Sample):
        return batch
    labels = labels_of(model, batch) if labelled else None
    if labelled and labels is None:
        raise LdrfError("With 'labels' above 0 every batch must be (inputs, labels), the labels whole numbers [batch].")
    return Sample(read_inputs(model, batch), labels)


@dataclass(frozen=True)
class Part:
    """This process's rows of a batch: those from ``start`` of ``whole`` rows."""

    sample: Sample
    start: int
    whole: int

    @property
    def divided(self) -> bool:
        """Whether other processes have other rows; a batch of fewer rows than processes is done whole by all."""
        return self.sample.inputs.rows < self.whole

    @property
    def weight(self) -> float:
        """Its share of the batch's mean loss."""
        return self.sample.inputs.rows / self.whole if self.divided else 1 / count()


def parts(model: nn.Module, batches: Iterable[Any], labelled: bool) -> Iterator[Part]:
    """Of every batch the rows of this process; where batches are made from rows, it reads no others."""
    if isinstance(batches, IndexedBatches):
        for rows in batches.listed():
            start, stop = _own_rows(len(rows))
            yield Part(read_sample(model, batches.read(rows[start:stop]), labelled), start, len(rows))
        return
    for step, batch in enumerate(batches):
        sample = read_sample(model, batch, labelled)
        if step == 0:
            check_same(partial(fingerprint, enumerate(sample.inputs.tensors())), "batches")
        start, stop = _own_rows(sample.inputs.rows)
        labels = sample.labels[start:stop] if sample.labels is not None else None
        own = sample.inputs.map(lambda t, a=start, b=stop: t[a:b])
        yield Part(Sample(own, labels), start, sample.inputs.rows)


def _own_rows(rows: int) -> tuple[int, int]:
    return share(rows) if rows >= count() else (0, rows)


def own_batches(batches: Iterable[Any]) -> Iterator[Any]:
    """The batches that this process goes through when each is gone through by one alone."""
    if isinstance(batches, IndexedBatches):
        return map(batches.read, islice(batches.listed(), rank(), None, count()))
    return islice(batches, rank(), None, count())


def in_memory(model: nn.Module, batches: Iterable[Any], labelled: bool) -> IndexedBatches:
    """All examples of the batches side by side, to be read in any order."""
    batches = [batches] if isinstance(batches, Tensor) else batches
    if not isinstance(batches, Iterable):
        raise LdrfError(f"The batches to fine-tune on must be an iterable. Got {type(batches).__name__} instead.")
    samples = [read_sample(model, batch, labelled) for batch in batches]
    if not samples:
        raise LdrfError("Fine-tuning needs at least one batch. Got none: pass unlabelled images.")
    whole = _joined([s.inputs for s in samples])
    labels = torch.cat([s.labels for s in samples if s.labels is not None]) if labelled else None

    def read(rows: list[int]) -> Sample:
        index = torch.tensor(rows)
        return Sample(whole.map(lambda t: t[index]), labels[index] if labels is not None else None)

    return IndexedBatches(read, tuple(range(whole.rows)), labelled=labelled)


def _joined(parts: list[Inputs]) -> Inputs:
    """One long batch of all; what is no tensor is taken from the first."""
    first = parts[0]
    try:
        args = tuple(_cat([p.args[i] for p in parts]) for i in range(len(first.args)))
        kwargs = {name: _cat([p.kwargs[name] for p in parts]) for name in first.kwargs}
    except (RuntimeError, LookupError) as problem:
        raise LdrfError(f"All batches to fine-tune on must have inputs of the same shapes: {problem}.") from problem
    return Inputs(args, kwargs)


def _cat(values: list[Any]) -> Any:
    return torch.cat([v.cpu() for v in values]) if isinstance(values[0], Tensor) else values[0]
