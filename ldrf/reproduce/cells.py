"""Cells: single measurements, each kept in a file of its own, so that a long run goes on where it stopped."""

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, TypeGuard

from tqdm import tqdm

from ldrf.errors import LdrfError
from ldrf.files.strict_json import plain, read_json
from ldrf.files.writing import write_whole
from ldrf.reproduce.commit import code_commit
from ldrf.result import versions

Kind = Literal["dense", "energy", "ranks", "prune", "tune", "time", "maps"]
Record = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """One measurement: what is done, with which settings, and the cell whose outcome it starts from."""

    name: str
    kind: Kind
    settings: dict[str, Any] = field(default_factory=dict)
    source: "Cell | None" = None

    def key(self, subject: str) -> str:
        """The hash under which the outcome on ``subject`` is kept; the name is not part of it."""
        identity = [subject, self.kind, self.settings, self.source.key(subject) if self.source else None]
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:20]


@dataclass(frozen=True)
class Shelf:
    """A folder of finished cells of one subject (the hash of a network and its images).

    ``earlier`` has records that were made elsewhere, by key, such as those of a file of results.
    """

    folder: Path
    subject: str
    earlier: dict[str, Record] = field(default_factory=dict)

    def find(self, cell: Cell) -> Record | None:
        """The record of ``cell`` if it is finished; a file that is no record counts as none."""
        key = cell.key(self.subject)
        try:
            record = read_json(self._file(cell))
        except (OSError, ValueError):
            record = None
        known = record if _is_record(record) else self.earlier.get(key)
        return {**known, "name": cell.name, "key": key} if _is_record(known) else None

    def keep(self, cell: Cell, outcome: dict[str, Any], seconds: float) -> Record:
        """Write the record of ``cell``, whole or not at all."""
        record: Record = {
            "name": cell.name,
            "key": cell.key(self.subject),
            "kind": cell.kind,
            "settings": cell.settings,
            "source": cell.source.name if cell.source else None,
            "outcome": outcome,
            "seconds": round(seconds, 1),
            "versions": versions(),
            "commit": code_commit(),  # one version has many commits
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self._file(cell), json.dumps(plain(record), indent=1) + "\n")
        return record

    def clear(self, cell: Cell) -> None:
        """Forget a finished cell, and what else it left."""
        self.earlier.pop(cell.key(self.subject), None)
        self._file(cell).unlink(missing_ok=True)
        shutil.rmtree(self.place(cell), ignore_errors=True)

    def place(self, cell: Cell) -> Path:
        """A folder for what else the cell leaves: its slim network, its checkpoint."""
        return self.folder / cell.key(self.subject)

    def _file(self, cell: Cell) -> Path:
        return self.folder / f"{cell.key(self.subject)}.json"


def _is_record(value: Any) -> TypeGuard[Record]:
    """Whether ``found`` has all that :meth:`Shelf.keep` writes."""
    tables = ("settings", "outcome", "versions")
    return (
        isinstance(value, dict)
        and all(isinstance(value.get(key), dict) for key in tables)
        and isinstance(value.get("kind"), str)
        and isinstance(value.get("seconds"), int | float)
    )


@dataclass(frozen=True)
class RunSummary:
    """What came of a list of cells: records of the finished, names of those left, reasons of those refused."""

    done: dict[str, Record]
    left: tuple[str, ...]
    refused: dict[str, str]


Measure = Callable[[Cell], dict[str, Any]]


def run_cells(
    cells: Sequence[Cell],
    shelf: Shelf,
    measure: Measure,
    glob: str = "*",
    minutes: float | None = None,
    again: bool = False,
) -> RunSummary:
    """Measure the cells whose name matches ``glob`` and that are not on the shelf yet, starting none after ``minutes``.

    Every finished cell is in the result, whether it was measured now or before. With ``again`` those that match are
    measured anew, and all that starts from them.
    """
    start, refused = time.monotonic(), {}
    matching = [cell for cell in cells if fnmatchcase(cell.name, glob)]
    if not matching:
        raise LdrfError(f"No cell matches '{glob}': the cells are {', '.join(cell.name for cell in cells)}.")
    stale = _that_start_from(matching, cells) if again else []
    wanted = [c for c in _with_sources([*matching, *stale]) if c in stale or shelf.find(c) is None]
    with _bar(len(cells), sum(shelf.find(c) is not None and c not in wanted for c in cells)) as bar:
        for position, cell in enumerate(wanted):
            if minutes is not None and time.monotonic() - start >= 60 * minutes:
                break
            bar.set_description_str(cell.name)
            for outdated in _that_start_from([cell], cells) if cell in stale else ():
                shelf.clear(outdated)  # not before its turn: a run that ends early loses nothing else
            refusal = _finish(cell, shelf, measure, refused)
            if refusal:
                refused[cell.name] = refusal
            bar.update()
            left = _expected(wanted[position + 1 :], [r for c in cells if (r := shelf.find(c))])
            bar.set_postfix_str(f"about {spell(left)} left")
            tqdm.write(f"{cell.name}: {refusal or _summary(shelf.find(cell))}, about {spell(left)} left")
    done = {cell.name: record for cell in cells if (record := shelf.find(cell))}
    return RunSummary(done, tuple(c.name for c in cells if c.name not in done and c.name not in refused), refused)


def _that_start_from(chosen: Sequence[Cell], cells: Sequence[Cell]) -> list[Cell]:
    """The chosen cells and those that start from one of them, directly or not."""
    names = {cell.name for cell in chosen}
    while more := {c.name for c in cells if c.source and c.source.name in names} - names:
        names |= more
    return [cell for cell in cells if cell.name in names]


def _bar(total: int, finished: int) -> tqdm:
    form = "{desc} |{bar}| {n_fmt} of {total_fmt} cells, {elapsed} gone{postfix}"
    return tqdm(total=total, initial=finished, disable=None, leave=False, bar_format=form)


def _finish(cell: Cell, shelf: Shelf, measure: Measure, refused: dict[str, str]) -> str | None:
    """Measure ``cell`` and keep what came of it, or say why it can't be done."""
    if cell.source is not None and cell.source.name in refused:
        return f"needs {cell.source.name}, which was refused"
    start = time.perf_counter()
    try:
        outcome = measure(cell)
    except LdrfError as problem:
        return f"refused ({problem})"
    shelf.keep(cell, outcome, time.perf_counter() - start)
    return None


def _with_sources(cells: Iterable[Cell]) -> list[Cell]:
    """The cells in their order, each after the one it starts from."""
    ordered: dict[str, Cell] = {}

    def add(cell: Cell) -> None:
        if cell.source is not None:
            add(cell.source)
        ordered.setdefault(cell.name, cell)

    for cell in cells:
        add(cell)
    return list(ordered.values())


def _expected(left: Sequence[Cell], done: Sequence[Record]) -> float:
    """Seconds the cells left should take: each the mean of finished ones of its kind and method, or of all."""

    def mean(values: Sequence[float]) -> float | None:
        return sum(values) / len(values) if values else None

    def alike(cell: Cell) -> list[float]:
        method = cell.settings.get("method")
        return [r["seconds"] for r in done if r["kind"] == cell.kind and r["settings"].get("method") == method]

    usual = mean([record["seconds"] for record in done]) or 0.0
    return sum(mean(alike(cell)) or usual for cell in left)


def _summary(record: Record | None) -> str:
    if record is None:
        return "not kept"
    top1 = record["outcome"].get("top1")
    return f"{'done' if top1 is None else f'top-1 {top1:.2f} %'} in {spell(record['seconds'])}"


def spell(seconds: float) -> str:
    """A time as people say it: 40 s, 12 min, 3 h 05 min."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"
