"""The folder that a command writes its result to."""

from pathlib import Path

from ldrf.errors import LdrfError
from ldrf.files.result_folders import RECORD, unfinished
from ldrf.saving.journal import discard


def check_out(folder: Path, force: bool) -> None:
    """Refuse, before the work, a folder that must not be written."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise LdrfError(f"'{folder}' is a file: --out needs a folder.")
    if unfinished(folder):
        if not force:
            raise LdrfError(
                f"'{folder}' holds an unfinished run: continue it with --resume, choose another --out, "
                "or add --force to throw it away."
            )
        discard(folder)
    if not any(folder.iterdir()):
        return
    if not (folder / RECORD).is_file():
        raise LdrfError(f"'{folder}' is not empty and holds no earlier result: choose another --out.")
    if not force:
        raise LdrfError(f"'{folder}' holds an earlier result: choose another --out, or add --force to replace it.")
