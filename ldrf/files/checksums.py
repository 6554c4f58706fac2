"""A checksum of tensors: their names, kinds, shapes and bits."""

import hashlib
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


def fingerprint(named: Iterable[tuple[Any, Any]]) -> str:
    """SHA-256 of ``(name, value)`` pairs in their order; what is no tensor counts as it prints."""
    digest = hashlib.sha256()
    for name, value in named:
        if not isinstance(value, Tensor):
            digest.update(f"{name} {value!r}\n".encode())
            continue
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
