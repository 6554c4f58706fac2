"""Files written all or nothing, and disk errors reported in one sentence."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ldrf.errors import LdrfError

PART = ".part"  # in the name of a file that is still being written


@contextmanager
def disk_errors_as_sentence(action: str, remedy: str = "") -> Iterator[None]:
    """Turn an :class:`OSError`, such as that of a full disk, into an :class:`LdrfError`: "Cannot <action>: ..."."""
    try:
        yield
    except OSError as problem:
        raise LdrfError(f"Cannot {action}: {problem.strerror or problem}.{remedy}") from problem


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a path beside ``path`` to write the new file to; at the end it is forced to disk and renamed to ``path``.

    Whatever happens, ``path`` is the old file or the new one. The path beside ends in the same suffix, for writers that
    look at it, and no other process uses it.
    """
    beside = path.with_name(f".{path.stem}-{secrets.token_hex(4)}{PART}{path.suffix}")
    try:
        yield beside
        _sync(beside)
        os.replace(beside, path)
        sync_folder(path.parent)
    except BaseException:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise


def write_whole(path: Path, data: bytes | str) -> None:
    """Write a file by :func:`replacing`; text is written as UTF-8."""
    with replacing(path) as beside:
        beside.write_bytes(data.encode() if isinstance(data, str) else data)


def write_through(path: Path, data: bytes) -> None:
    """Write a new file and wait until it is on the disk."""
    path.write_bytes(data)
    _sync(path)


def is_part_of(name: str, whole: str) -> bool:
    """Whether a file of this name is what a killed process left of writing a file called ``whole``."""
    stem, suffix = Path(whole).stem, Path(whole).suffix
    left_now = name.startswith(f".{stem}-") and name.endswith(f"{PART}{suffix}")
    return left_now or name == f".{whole}{PART}"  # the second is how earlier versions called it


def _sync(path: Path) -> None:
    with open(path, "rb+") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until names in ``folder`` are on the disk, where the system has a way to."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
