"""SHA-256 checksums of tensors and of files.

Checksums lie in result folders, journals and files of results: the bytes that each is made of must never change.
"""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


def file_checksum(path: Path) -> str:
    """SHA-256 of a file, read piece by piece."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fingerprint(named: Iterable[tuple[Any, Any]]) -> str:
    """SHA-256 of ``(name, value)`` pairs in their order: names, and each tensor's dtype, shape and bits.

    A value that is not a tensor counts as it prints.
    """
    digest = hashlib.sha256()
    for name, value in named:
        if isinstance(value, Tensor):
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
            digest.update(tensor_bytes(value))
        else:
            digest.update(f"{name} {value!r}\n".encode())
    return digest.hexdigest()


def state_checksum(state: Mapping[str, Tensor], more: Iterable[bytes | memoryview] = ()) -> str:
    """SHA-256 of the names and bits of a state dict, and of ``more`` behind them.

    Fine-tuning states and reproduced results carry it; it knows no shapes, so new files should use :func:`fingerprint`.
    """
    digest = hashlib.sha256()
    for name, tensor in state.items():
        digest.update(name.encode())
        digest.update(tensor_bytes(tensor))
    for part in more:
        digest.update(part)
    return digest.hexdigest()


def tensor_bytes(tensor: Tensor) -> memoryview:
    """The bits of a tensor in the order of its entries, whatever its layout or device."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
