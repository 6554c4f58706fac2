"""Folders that results and runs are written to: what may be there, and how one result takes another's place."""

import os
import re
import shutil
import tempfile
from pathlib import Path

from ldrf.errors import LdrfError
from ldrf.files.writing import is_part_of, sync_folder

WEIGHTS, RECORD, DETAILS = "model.safetensors", "ldrf.json", "report.json"
PAGE = "report.html"  # made by 'ldrf report'; it tells of one result, and goes with it
JOURNAL, SETTINGS, LEARNED, LOCK = "ldrf-journal", "settings.json", "learned.safetensors", "lock"


def check_place(folder: Path) -> None:
    """Raise where neither run nor result may be written: a file, or a folder of something else.

    What a process killed in :func:`swap` has left half-way is put right first.
    """
    _mend(folder)
    if folder.exists() and not folder.is_dir():
        raise LdrfError(f"Cannot save to '{folder}': it is a file, not a folder.")
    names = {p.name for p in folder.iterdir()} if folder.is_dir() else set()
    if _is_foreign(folder / JOURNAL) or (names - {JOURNAL} and not unfinished(folder) and RECORD not in names):
        raise LdrfError(
            f"Cannot save to '{folder}': it holds something else than an ldrf result; name an empty folder."
        )
    writable = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not os.access(writable, os.W_OK):
        raise LdrfError(f"Cannot save to '{folder}': '{writable}' is read-only; name another folder.")


def check_replaceable(folder: Path, force: bool) -> None:
    """Raise where an earlier result would be lost and that was not asked for: the one rule of calls and commands."""
    if (folder / RECORD).exists() and not force:
        raise LdrfError(
            f"'{folder}' holds an earlier result: name another folder, or replace it by force=True (--force)."
        )


def unfinished(folder: Path) -> bool:
    """Whether ``folder`` holds the journal of a run that has come through its first stage and not to its end."""
    return (folder / JOURNAL / LEARNED).is_file()


def _is_foreign(journal: Path) -> bool:
    """Whether what has the journal's name is none."""
    if not journal.is_dir():
        return journal.exists()
    names = {p.name for p in journal.iterdir()}
    others = {n for n in names - {LOCK, SETTINGS} if not is_part_of(n, SETTINGS) and not is_part_of(n, LEARNED)}
    return LEARNED not in names and bool(others)


def new_folder(folder: Path) -> Path:
    """A folder beside ``folder`` to write its new contents to, for :func:`swap`."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=f".{folder.name}-new-", dir=folder.parent))


def swap(beside: Path, folder: Path) -> None:
    """Put the new folder in place of the old one, which is deleted only afterwards; files of others move along."""
    if not folder.exists():
        os.rename(beside, folder)
        sync_folder(folder.parent)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{folder.name}-old-", dir=folder.parent))
    try:
        os.rename(folder, old / "was")
        os.rename(beside, folder)
        sync_folder(folder.parent)
    finally:
        _put_right(old, folder)


def _put_right(old: Path, folder: Path) -> None:
    """After a swap, done or not: the old folder comes back if there is no new one, else files of others move along."""
    if (old / "was").is_dir():
        if not folder.exists():
            os.rename(old / "was", folder)
        else:
            for item in (old / "was").iterdir():
                if item.name not in (WEIGHTS, RECORD, DETAILS, PAGE, JOURNAL) and not (folder / item.name).exists():
                    os.rename(item, folder / item.name)
    shutil.rmtree(old, ignore_errors=True)


def _mend(folder: Path) -> None:
    """Put right what a process killed while it saved to ``folder`` has left beside it."""
    left = re.compile(rf"\.{re.escape(folder.name)}-(old|new)-\w{{8}}")
    for item in list(folder.parent.iterdir()) if folder.parent.is_dir() else ():
        match = left.fullmatch(item.name)
        if match and match[1] == "old":
            _put_right(item, folder)
        elif match:
            shutil.rmtree(item, ignore_errors=True)
