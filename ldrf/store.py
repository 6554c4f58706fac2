"""A place for activations with a byte budget: what does not fit in memory goes to a temporary folder."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

Key = tuple[str, ...] | tuple[Any, ...]


class ActivationStore:
    """Tensors by key; at most ``budget`` bytes stay in memory, the rest lies on disk until dropped."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.used = 0
        self._memory: dict[Key, Tensor] = {}
        self._disk: dict[Key, tuple[Path, torch.Size, torch.dtype]] = {}
        self._folder: Path | None = None
        self._written = 0

    def put(self, key: Key, value: Tensor) -> None:
        self.drop(key)
        value = value.detach()
        size = value.numel() * value.element_size()
        if self.used + size <= self.budget:
            # A view would keep its whole base alive beyond the budget.
            self._memory[key] = value if value.untyped_storage().nbytes() == size else value.clone()
            self.used += size
        else:
            self._spill(key, value)

    def _spill(self, key: Key, value: Tensor) -> None:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="ldrf-"))
        self._written += 1
        path = self._folder / f"{self._written}.bin"
        value.contiguous().cpu().flatten().view(torch.uint8).numpy().tofile(path)
        self._disk[key] = (path, value.shape, value.dtype)

    def get(self, key: Key) -> Tensor:
        if key in self._memory:
            return self._memory[key]
        path, shape, dtype = self._disk[key]
        return torch.from_numpy(np.fromfile(path, dtype=np.uint8)).view(dtype).view(shape)

    def drop(self, key: Key) -> None:
        if key in self._memory:
            value = self._memory.pop(key)
            self.used -= value.numel() * value.element_size()
        elif key in self._disk:
            self._disk.pop(key)[0].unlink(missing_ok=True)

    def __iter__(self) -> Iterator[Key]:
        return iter([*self._memory, *self._disk])

    def close(self) -> None:
        self._memory.clear()
        self._disk.clear()
        self.used = 0
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def __enter__(self) -> "ActivationStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
