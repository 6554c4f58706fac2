"""Tensors from files that others may have written or damaged: never code, and never more memory than the file is long.

Safetensors files hold nothing but numbers. Files of ``torch.save`` are pickles: they are read with ``weights_only``,
which admits tensors and plain containers alone.
"""

import math
import stat
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from ldrf.errors import first_line
from ldrf.files.strict_json import parse_json

HEADER = 16 * 2**20  # bytes; names and shapes of a hundred thousand tensors
Device = str | torch.device


def file_size(path: Path) -> int:
    """Bytes of a plain file; a ValueError where it is a folder, a pipe or a device."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise ValueError("it is not a plain file")
    return found.st_size


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file by name; a ValueError (or OSError) says what is wrong with it."""
    size = file_size(path)
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(size - 8, HEADER):
            raise ValueError(f"its header is said to be {length} bytes long, the file is {size}")
        header = parse_json(file.read(length))
    if not isinstance(header, dict):
        raise ValueError("its header is no table of tensors")
    try:
        return load_file(path)
    except (SafetensorError, KeyError, TypeError, RuntimeError, OverflowError) as problem:
        raise ValueError(first_line(problem)) from problem


def read_torch(path: Path, device: Device = "cpu", checked: bool = False) -> Any:
    """What ``torch.save`` wrote: tensors and plain containers, never code; a ValueError says what is wrong with it.

    ``checked`` also compares the file with the checksums in it, which files of other tools need not have.
    """
    size = file_size(path)
    try:
        if zipfile.is_zipfile(path):
            _check_archive(path, size, checked)
        return torch.load(path, map_location=device, weights_only=True)
    except Exception as problem:  # a damaged pickle can fail in any way
        raise ValueError("torch.load finds no plain tensors in it with weights_only=True") from problem


def _check_archive(path: Path, size: int, checked: bool) -> None:
    """``torch.save`` does not compress: an archive that would unpack to more than its own size is a bomb."""
    with zipfile.ZipFile(path) as archive:
        parts = archive.infolist()
        if any(p.compress_type != zipfile.ZIP_STORED for p in parts) or sum(p.file_size for p in parts) > size:
            raise ValueError("it is compressed")
        if checked and archive.testzip() is not None:
            raise ValueError("a checksum does not match")


def first_odd(tensors: Mapping[str, Tensor], parameters: set[str]) -> str | None:
    """The first tensor with a NaN, or the first parameter with an infinite value; masks of buffers may have those."""
    for name, tensor in tensors.items():
        tensor = tensor.float() if tensor.is_floating_point() and tensor.element_size() == 1 else tensor
        if tensor.is_floating_point() and not math.isfinite(float(tensor.sum())):  # one pass, and no copy
            odd = ~torch.isfinite(tensor) if name in parameters else torch.isnan(tensor)
            if bool(odd.any()):
                return name
    return None
