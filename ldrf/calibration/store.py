"""A store of activations with byte budgets: from the device to the host's memory, and on to a file without a name."""

import tempfile
from bisect import insort
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ldrf.files.writing import disk_errors_as_sentence
from ldrf.runtime.device import CPU, host_copy

Owner = Literal["dense", "slim", "unit"]
Role = Literal["value", "ahead", "input", "partner input", "goal", "factors", "shortcut", "side"]


@dataclass(frozen=True)
class Key:
    """Under which a tensor is stored: whose it is, of which chunk, and what it is.

    A network owns the ``value`` of a node, called ``name``, and the dense one what was computed ``ahead`` of its
    frontier. The unit at hand owns the ``input`` of its producer and of its partners; the ``goal`` of each consumer,
    the ``factors`` of its rows where some are far larger than others, and the ``shortcut`` its output is added to, by
    the consumer's number; and, on the ``side``, the other values that its path reads.
    """

    owner: Owner
    chunk: int
    role: Role
    name: str = ""


@dataclass(frozen=True)
class Spilled:
    """Where a tensor lies in the file, and how it lay in memory: maps of another layout are summed in another order."""

    start: int
    size: int
    shape: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype


class SpillFile:
    """Bytes in one file without a name: the system frees it when the process ends, however it ends."""

    def __init__(self, folder: Path | None) -> None:
        self.file = tempfile.TemporaryFile(prefix="ldrf-", dir=folder, buffering=0)  # noqa: SIM115
        self._free: list[tuple[int, int]] = []  # (start, size) of the gaps, in order, no two of them touching
        self.end = 0
        self._moving = Lock()  # a thread may read ahead

    def write(self, data: np.ndarray) -> int:
        """Write ``data`` where there is room for it; returns the place."""
        start, view = self._room(data.nbytes), data.data
        with self._moving:
            self.file.seek(start)
            while view:
                view = view[self.file.write(view) :]
        return start

    def _room(self, size: int) -> int:
        """The first gap that is large enough, or the end of the file."""
        for i, (start, gap) in enumerate(self._free):
            if gap >= size:
                self._free[i : i + 1] = [(start + size, gap - size)] if gap > size else []
                return start
        start, self.end = self.end, self.end + size
        return start

    def read(self, start: int, into: np.ndarray) -> None:
        """Fill ``into`` with the bytes from ``start`` on."""
        view = into.data
        with self._moving:
            self.file.seek(start)
            while view:
                got = self.file.readinto(view)  # pyright: ignore[reportAttributeAccessIssue]
                if not got:
                    raise EOFError("the file of spilled activations is shorter than what was written to it")
                view = view[got:]

    def free(self, start: int, size: int) -> None:
        """Give a place back; a gap at the end shortens the file."""
        insort(self._free, (start, size))
        merged: list[tuple[int, int]] = []
        for at, gap in self._free:
            if merged and sum(merged[-1]) == at:
                merged[-1] = (merged[-1][0], merged[-1][1] + gap)
            else:
                merged.append((at, gap))
        if merged and sum(merged[-1]) == self.end:
            self.end = merged.pop()[0]
            self.file.truncate(self.end)
        self._free = merged


class ActivationStore:
    """Tensors by key: on the device within ``device_budget`` bytes, then in the host's memory within ``budget``, and
    beyond that on disk until dropped. On the CPU there is no device beside the host.

    Beside these bytes, it holds what the next chunk needs: it is read ahead while the one before it is worked on.
    """

    def __init__(
        self, budget: int, folder: Path | None = None, device: torch.device = CPU, device_budget: int = 0
    ) -> None:
        self.budget, self.folder = budget, folder
        self.device, self.device_budget = device, device_budget
        self.used = 0
        self.device_used = 0
        self._device: dict[Key, Tensor] = {}
        self._memory: dict[Key, Tensor] = {}
        self._disk: dict[Key, Spilled] = {}
        self._file: SpillFile | None = None
        self._ahead: dict[Key, Tensor | Future[Tensor]] = {}
        self._reader: ThreadPoolExecutor | None = None

    def put(self, key: Key, value: Tensor) -> None:
        """Store a tensor, in place of any that has this key."""
        self.drop(key)
        value = value.detach()
        size = value.numel() * value.element_size()
        # A view would keep its whole base alive beyond the budget.
        value = value if value.untyped_storage().nbytes() == size else value.clone()
        if value.device.type != "cpu" and self.device_used + size <= self.device_budget:
            self._device[key] = value
            self.device_used += size
            return
        if self.used + size <= self.budget:
            self._memory[key] = value if value.device.type == "cpu" else host_copy(value)
            self.used += size
        else:
            self._spill(key, value.cpu(), size)

    def put_if_roomy(self, key: Key, value: Tensor) -> None:
        """Store a tensor that can be computed again, only where half of the memory stays free of it."""
        size = value.numel() * value.element_size()
        used, budget = (
            (self.used, self.budget) if value.device.type == "cpu" else (self.device_used, self.device_budget)
        )
        if used + size <= budget // 2:
            self.put(key, value)

    def _spill(self, key: Key, value: Tensor, size: int) -> None:
        """Write a tensor to disk."""
        remedy = " Make room there, or let more stay in memory (memory=)" + ("; then resume." if self.folder else ".")
        with disk_errors_as_sentence(f"write activations to '{self.folder or tempfile.gettempdir()}'", remedy):
            self._file = self._file or SpillFile(self.folder)
            start = self._file.write(_bytes(value))
        self._disk[key] = Spilled(start, size, value.shape, value.stride(), value.dtype)

    def get(self, key: Key) -> Tensor:
        """The tensor of a key on the device, read back from disk if it lies there."""
        if key in self._device:
            return self._device[key]
        value = self._ahead.pop(key, None)
        if isinstance(value, Future):
            value = value.result()
        if value is None:
            value = self._memory[key] if key in self._memory else self._read(self._disk[key])
        return value.to(self.device, non_blocking=True)  # a pinned tensor does not hold the host up

    def _read(self, place: Spilled) -> Tensor:
        value = torch.empty_strided(place.shape, place.stride, dtype=place.dtype)
        assert self._file is not None
        self._file.read(place.start, _bytes(value))
        return value

    def in_turn(self, chunks: Sequence[int], *owners: Owner) -> Iterator[int]:
        """The chunks one after the other; while one is worked on, what these owners have of the next is read ahead."""
        for place, chunk in enumerate(chunks):
            if place + 1 < len(chunks):
                self.read_ahead(chunks[place + 1], *owners)
            yield chunk

    def read_ahead(self, chunk: int, *owners: Owner) -> None:
        """Begin to bring what owners have of a chunk on disk into memory, and what is in memory to the device."""
        self._forget_ahead([key for key in self._ahead if key.chunk != chunk])
        for key, place in self._disk.items():
            if key.chunk == chunk and key.owner in owners and key not in self._ahead:
                self._reader = self._reader or ThreadPoolExecutor(1)
                self._ahead[key] = self._reader.submit(self._read, place)
        if self.device.type != "cpu":
            for key, value in self._memory.items():
                if key.chunk == chunk and key.owner in owners and key not in self._ahead:
                    self._ahead[key] = value.to(self.device, non_blocking=True)

    def _forget_ahead(self, keys: Iterable[Key]) -> None:
        for key in keys:
            value = self._ahead.pop(key, None)
            if isinstance(value, Future) and not value.cancel():
                value.result()  # the place it reads from must not be written to before

    def drop(self, key: Key) -> None:
        """Forget the tensor of a key, if there is one."""
        self._forget_ahead([key])
        if key in self._device:
            value = self._device.pop(key)
            self.device_used -= value.numel() * value.element_size()
        elif key in self._memory:
            value = self._memory.pop(key)
            self.used -= value.numel() * value.element_size()
        elif key in self._disk:
            place = self._disk.pop(key)
            assert self._file is not None
            self._file.free(place.start, place.size)

    def keys(self, owner: Owner, chunk: int, role: Role) -> dict[str, Key]:
        """The keys of all that an owner has in one role, by name."""
        return {key.name: key for key in self if (key.owner, key.chunk, key.role) == (owner, chunk, role)}

    def drop_all(self, owner: Owner) -> None:
        """Drop everything that an owner has."""
        for key in self:
            if key.owner == owner:
                self.drop(key)

    @property
    def spilled(self) -> int:
        """Bytes that the file takes."""
        return self._file.end if self._file is not None else 0

    def __iter__(self) -> Iterator[Key]:
        return iter([*self._device, *self._memory, *self._disk])

    def close(self) -> None:
        """Forget everything, and give the disk space back."""
        self._forget_ahead(list(self._ahead))
        for tensors in (self._device, self._memory, self._disk):
            tensors.clear()
        self.used = self.device_used = 0
        if self._reader is not None:
            self._reader.shutdown()
            self._reader = None
        if self._file is not None:
            self._file.file.close()
            self._file = None

    def __enter__(self) -> "ActivationStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _bytes(value: Tensor) -> np.ndarray:
    """The memory of a tensor without gaps, in the order it lies there."""
    flat = value.as_strided((value.numel(),), (1,), value.storage_offset())
    return flat.view(torch.uint8).numpy()
