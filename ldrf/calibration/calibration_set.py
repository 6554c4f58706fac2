"""Calibration images in chunks: of several processes, each keeps its share of every chunk."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from torch import nn

from ldrf.calibration.indexed_batches import IndexedBatches
from ldrf.errors import LdrfError, first_line
from ldrf.files.checksums import fingerprint
from ldrf.inputs import Inputs, chunked, in_pieces, read_batches, regrouped
from ldrf.runtime.device import OutOfMemory
from ldrf.runtime.processes import check_same, count, share


@dataclass(frozen=True)
class Calibration:
    """Chunks of inputs; those in ``held_out`` only judge, they are never fitted.

    ``chunks`` are this process's images of them, from image ``starts[i]`` of the ``sizes[i]`` in the whole chunk.
    """

    chunks: tuple[Inputs, ...]
    held_out: frozenset[int]
    example: Inputs  # the first images, the same in all processes
    starts: tuple[int, ...]
    sizes: tuple[int, ...]
    halvings: int = 0  # how often chunks were made smaller, as a device ran out of memory
    batch: int = 0  # images of the first batch that was given
    others: int = 0  # images that were given beside these, where these are the first of them

    @property
    def fitting(self) -> list[int]:
        """The chunks that are fitted."""
        rest = [i for i in range(len(self.chunks)) if i not in self.held_out]
        return rest or sorted(self.held_out)  # a single image both fits and judges

    @property
    def examples(self) -> int:
        """Images in all chunks of all processes."""
        return sum(self.sizes)

    def room(self, budget: int) -> int:
        """Bytes of ``budget`` that the images leave to activations, a quarter of it at least."""
        images = sum(t.numel() * t.element_size() for chunk in self.chunks for t in chunk.tensors())
        return max(budget - images, budget // 4)

    def halved(self) -> "Calibration":
        """The same images of one process in chunks of half as many, rounded up; the same ones are held out."""
        halves = [-(-size // 2) for size in self.sizes]
        parts = [(i, a, b) for i, n in enumerate(self.sizes) for a, b in ((0, halves[i]), (halves[i], n)) if b > a]
        chunks = tuple(self.chunks[i].map(lambda t, a=a, b=b: t[a:b]) for i, a, b in parts)
        held_out = frozenset(number for number, (i, _, _) in enumerate(parts) if i in self.held_out)
        example = self.example.map(lambda t: t[: -(-len(t) // 2)])
        sizes = tuple(b - a for _, a, b in parts)
        return Calibration(chunks, held_out, example, (0,) * len(chunks), sizes, self.halvings + 1, self.batch)

    def in_batches(self, size: int, held_out: float) -> "Calibration":
        """The images of one process in chunks of exactly ``size``; those left over at the end are left out.

        A single chunk both fits and judges.
        """
        chunks = tuple(regrouped(self.chunks, size))
        whole = Calibration(chunks, frozenset(), chunks[0], (0,) * len(chunks), (size,) * len(chunks), 0, self.batch)
        return _set_apart(whole, held_out)

    def first(self, images: int | None) -> "Calibration":
        """The first chunks with so many images, some of them held out; or all of them."""
        if images is None or images >= self.examples or len(self.fitting) + len(self.held_out) > len(self.chunks):
            return self
        number = next(n for n in range(1, len(self.chunks) + 1) if sum(self.sizes[:n]) >= images)
        number = max(number, min(self.held_out) + 1, self.fitting[0] + 1)
        held_out = frozenset(chunk for chunk in self.held_out if chunk < number)
        chunks, starts, sizes = self.chunks[:number], self.starts[:number], self.sizes[:number]
        return replace(
            self, chunks=chunks, held_out=held_out, starts=starts, sizes=sizes, others=sum(self.sizes[number:])
        )

    def own(self, chunks: Iterable[int] | None = None) -> list[int]:
        """Those of ``chunks`` (or of all) of which this process has images."""
        return [i for i in (range(len(self.chunks)) if chunks is None else chunks) if self.chunks[i].rows]

    def images(self, chunk: int) -> range:
        """The numbers of this process's images of a chunk, among the images of all."""
        first = sum(self.sizes[:chunk]) + self.starts[chunk]
        return range(first, first + self.chunks[chunk].rows)


# A chunk that is not read yet: its number of images, how to read those from one image to another, and how many images
# its batch has.
Piece = tuple[int, Callable[[int, int], Inputs], int]


def read_calibration(model: nn.Module, batches: Iterable[Any], size: int, held_out: float, shared: bool) -> Calibration:
    """Chunks of at most ``size`` images, a share ``held_out`` of them set apart.

    With ``shared`` each process keeps its part of every chunk, and where it can it reads no other.
    """
    shared = shared and count() > 1
    example, chunks, starts, sizes, batch = None, [], [], [], 0
    for images, read, of in _pieces(model, batches, size, shared):
        example, batch = example or read(0, images), batch or of
        start, stop = share(images, len(sizes)) if shared else (0, images)
        empty = example.map(lambda t: t[:0])
        chunks.append((_copied(read(start, stop)) if stop > start else empty) if shared else read(start, stop))
        starts.append(start)
        sizes.append(images)
    if example is None:
        raise LdrfError("The calibration batches must hold at least one batch. Got none: pass unlabelled images.")
    if shared:
        check_same(partial(fingerprint, enumerate([*example.tensors(), sizes])), "calibration batches")
    whole = Calibration(tuple(chunks), frozenset(), example, tuple(starts), tuple(sizes), batch=batch)
    return _halved(whole, held_out, shared) if sizes[0] > 1 and len(sizes) == 1 else _set_apart(whole, held_out)


def _pieces(model: nn.Module, batches: Iterable[Any], size: int, shared: bool) -> Iterator[Piece]:
    """All chunks in order; of indexed batches, a process reads no more than its share."""
    if shared and isinstance(batches, IndexedBatches):
        for listed in batches.listed():
            for at in range(0, len(listed), size):
                piece = listed[at : at + size]
                yield len(piece), lambda a, b, piece=piece: _read(model, batches, piece[a:b]), len(listed)
        return
    for batch in read_batches(model, batches):
        for chunk in in_pieces(batch, size):
            yield chunk.rows, lambda a, b, chunk=chunk: chunk.map(lambda t: t[a:b]), batch.rows


def _read(model: nn.Module, batches: IndexedBatches, images: list[int]) -> Inputs:
    return next(chunked(model, [batches.read(images)], len(images)))


def _copied(inputs: Inputs) -> Inputs:
    """The inputs in memory of their own: a view would keep the other processes' images, too."""
    return inputs.map(lambda t: t.clone())


def _halved(whole: Calibration, held_out: float, shared: bool) -> Calibration:
    """A single chunk cut in two: images to fit, and images to judge."""
    size = whole.sizes[0]
    middle = min(size - 1, max(1, round(size * (1 - held_out))))
    chunks, starts = [], []
    for turn, (first, last) in enumerate(((0, middle), (middle, size))):
        start, stop = share(last - first, turn) if shared else (0, last - first)
        chunks.append(whole.example.map(lambda t, a=first + start, b=first + stop: t[a:b]))
        starts.append(start)
    sizes = (middle, size - middle)
    return replace(whole, chunks=tuple(chunks), held_out=frozenset({1}), starts=tuple(starts), sizes=sizes)


def _set_apart(whole: Calibration, held_out: float) -> Calibration:
    """Every k-th chunk is set aside for judging."""
    every, number = max(2, round(1 / held_out)), len(whole.chunks)
    held = frozenset(range(every - 1, number, every)) or frozenset({number - 1})
    return replace(whole, held_out=held if number > 1 else frozenset({0}))


@contextmanager
def telling_images(calibration: Calibration, index: int) -> Iterator[None]:
    """An error of torch within says in one sentence which images the network cannot take."""
    try:
        yield
    except OutOfMemory:
        raise
    except (RuntimeError, IndexError, ValueError, TypeError) as problem:
        images = calibration.images(index)
        which = f"{images.start + 1} to {images.stop}"
        raise LdrfError(f"The network cannot take calibration images {which}: {first_line(problem)}.") from problem
