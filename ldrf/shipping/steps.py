"""What each step of a release left behind: a step whose settings and predecessors are the same is not done again."""

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ldrf.errors import LdrfError
from ldrf.files.strict_json import plain, read_json
from ldrf.files.writing import write_whole

NOTES = "steps.json"


@dataclass(frozen=True)
class Steps:
    """The notes of a release, in a folder of their own; ``files`` that a step names must still be there."""

    folder: Path
    tell: Callable[..., None]

    def done(self, name: str, key: str) -> dict[str, Any] | None:
        """What the step gave, if it was done with this key and its files are there."""
        note = self._notes().get(name)
        if note is None or note.get("key") != key or "data" not in note:
            return None
        return note["data"] if all(Path(file).exists() for file in note["data"].get("files", ())) else None

    def run(self, name: str, key: str, work: Callable[[Path, bool], dict[str, Any]]) -> dict[str, Any]:
        """Do a step unless it is done; ``work(folder, again)`` has a folder of its own, not empty where it goes on."""
        known = self.done(name, key)
        self.tell("step", name=name, done=known is not None)
        if known is not None:
            return known
        own, notes = self.folder / name, self._notes()
        again = notes.get(name, {}).get("key") == key and "data" not in notes[name] and own.exists()
        if not again:
            shutil.rmtree(own, ignore_errors=True)
        own.mkdir(parents=True, exist_ok=True)
        self._note(name, {"key": key})
        began = time.perf_counter()
        data = plain(work(own, again))
        seconds = round(time.perf_counter() - began, 2)
        self._note(name, {"key": key, "seconds": seconds, "data": data})
        self.tell("stepped", name=name, seconds=seconds)
        return data

    @property
    def seconds(self) -> dict[str, float]:
        """How long each step took."""
        return {name: note["seconds"] for name, note in self._notes().items() if "seconds" in note}

    def _notes(self) -> dict[str, Any]:
        path = self.folder / NOTES
        try:
            notes = read_json(path)
        except FileNotFoundError:
            return {}
        except (ValueError, OSError) as problem:
            raise LdrfError(f"'{path}' is damaged: {problem}; delete '{self.folder}' to start anew.") from problem
        return notes if isinstance(notes, dict) else {}

    def _note(self, name: str, note: Mapping[str, Any]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self.folder / NOTES, json.dumps({**self._notes(), name: note}, indent=2) + "\n")


def key_of(*parts: Any) -> str:
    """A checksum of settings, and of the key of the step before."""
    return hashlib.sha256(json.dumps(plain(parts), sort_keys=True, default=str).encode()).hexdigest()
