"""Files written all or nothing, and trouble with the disk told in one sentence."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ldrf.errors import LdrfError


@contextmanager
def told(what: str, remedy: str = "") -> Iterator[None]:
    """Turn what the system says of a full disk or a read-only folder into an :class:`LdrfError`."""
    try:
        yield
    except OSError as problem:
        raise LdrfError(f"Cannot {what}: {problem.strerror or problem}.{remedy}") from problem


def write_whole(path: Path, data: bytes) -> None:
    """Write beside ``path``, force it to disk, rename: whatever happens, the file is the old one or the new one."""
    beside = path.with_name(f".{path.name}.part")
    try:
        write_through(beside, data)
        os.replace(beside, path)
        sync_folder(path.parent)
    except BaseException:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise


def write_through(path: Path, data: bytes) -> None:
    """Write a file and wait until it is on the disk."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until names in ``folder`` are on the disk, where the system has a way to."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
