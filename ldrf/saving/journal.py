"""What a run has done so far, kept in its folder, so that a killed run loses no more than a unit or a few minutes.

Once stage 1 is done ``folder/ldrf-journal`` holds ``settings.json`` and ``learned.safetensors``, and a file for each
unit whose solution was found. While all units move together, their standing is kept every few minutes. Every file is
written all or nothing; the tensors carry a checksum, nothing is pickled. A run that goes on commits the solutions found
here instead of looking for them, and ends with the same bits. The journal goes when the result is saved.
"""

import hashlib
import json
import os
import shutil
import weakref
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from ldrf.algebra.descent import Standing
from ldrf.algebra.neuron_removal import Removal
from ldrf.calibration.network import Network
from ldrf.calibration.survey import Survey
from ldrf.config import PruneConfig
from ldrf.deployment.latency import Latency
from ldrf.errors import LdrfError
from ldrf.files.checksums import fingerprint
from ldrf.files.result_folders import (
    JOURNAL,
    LEARNED,
    LOCK,
    RECORD,
    SETTINGS,
    check_place,
    check_replaceable,
    unfinished,
)
from ldrf.files.strict_json import read_json
from ldrf.files.writing import disk_errors_as_sentence, write_whole
from ldrf.planning.findings import Findings
from ldrf.planning.plan import Plan
from ldrf.reconstruction.solution import Solution
from ldrf.reconstruction.unit_solver import Reconstruction
from ldrf.runtime.processes import from_first, is_first
from ldrf.saving.run_settings import compare, described
from ldrf.units.targets import Target
from ldrf.units.unit import Unit

FORMAT = 1
TOGETHER = "together.safetensors"
REMEDY = " What was done before is kept: mend that and go on with resume=True (--resume)."

Tables = dict[str, dict[str, Tensor]]


class Lock:
    """Keeps other processes from a journal while this one lives; where the system has no locks, it keeps nobody."""

    def __init__(self, journal: Path) -> None:
        handle = os.open(journal / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        self.release = weakref.finalize(self, os.close, handle)
        try:
            import fcntl

            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as problem:
            raise LdrfError(
                f"Another process is at the run in '{journal.parent}': wait for it, or name another folder."
            ) from problem
        except (ImportError, OSError):
            return


@dataclass
class Journal:
    """The journal of one run; without a folder it keeps nothing and knows nothing."""

    folder: Path | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    lock: Lock | None = None

    @property
    def spill(self) -> Path | None:
        """Where activations go that find no room; a machine that does not see the run's folder has its own place."""
        return self.folder if self.folder is not None and self.folder.is_dir() else None

    @property
    def checksums(self) -> dict[str, str]:
        """Of the dense weights and the calibration inputs, once the run has begun."""
        return self.settings.get("checksums", {})

    def begin(self, network: Network, target: Target, method: str, config: PruneConfig, labels: Tensor | None) -> None:
        """Note the run's settings; an unfinished run with others in the same folder is refused."""
        if self.folder is None:
            return
        self.settings = described(network, target, method, config, labels)
        from_first(self._compare)

    def _compare(self) -> None:
        if self.folder is not None and unfinished(self.folder.parent):
            self.lock = Lock(self.folder)
            compare(self.folder.parent, self.settings, _read_settings(self.folder / SETTINGS))

    def findings(self) -> Findings | None:
        """What stage 1 of this run found, if it had come to its end."""
        return None if self.folder is None else from_first(self._findings)

    def _findings(self) -> Findings | None:
        if self.folder is None or not (self.folder / LEARNED).exists():
            return None
        facts, tables = _read(self.folder / LEARNED)
        removals = {name: Removal(order, tables["errors"][name]) for name, order in tables["order"].items()}
        surveys = {name: Survey([], zeros, tables["activity"][name]) for name, zeros in tables["zeros"].items()}
        latency = facts.get("latency")
        timed = None if latency is None else Latency.from_dict(latency)
        plan = Plan(facts["widths"], tables["curves"], facts["curves_of"], timed)
        return Findings(plan, surveys, removals, tables["metrics"])

    def keep_findings(self, findings: Findings) -> Findings:
        """Note what stage 1 found, and hand it back; before that, a run leaves nothing in its folder."""
        if self.folder is not None:
            from_first(lambda: self._keep_findings(findings))
        return findings

    def _keep_findings(self, findings: Findings) -> None:
        if self.folder is None:
            return
        with disk_errors_as_sentence(f"begin a run in '{self.folder.parent}'"):
            self.folder.mkdir(parents=True, exist_ok=True)
            self.lock = Lock(self.folder)
            text = json.dumps({"format": FORMAT, "settings": self.settings}, indent=2)
            write_whole(self.folder / SETTINGS, f"{text}\n".encode())
        tables = {
            "curves": findings.plan.curves,
            "zeros": {name: s.zeros for name, s in findings.surveys.items()},
            "activity": {name: s.activity for name, s in findings.surveys.items()},
            "order": {name: r.order for name, r in findings.removals.items()},
            "errors": {name: r.errors for name, r in findings.removals.items()},
            "metrics": findings.metrics,
        }
        plan = findings.plan
        latency = None if plan.latency is None else plan.latency.as_dict()
        self._write(LEARNED, {"widths": plan.widths, "curves_of": plan.curves_of, "latency": latency}, tables)

    def solved(self, index: int, unit: Unit) -> Reconstruction | None:
        """The solution this run had found for a unit, if it had."""
        return None if self.folder is None else from_first(lambda: self._solved(index, unit))

    def _solved(self, index: int, unit: Unit) -> Reconstruction | None:
        if self.folder is None or not (path := self.folder / _unit_file(index)).exists():
            return None
        facts, tables = _read(path)
        if facts.pop("unit") != unit.name:
            raise LdrfError(f"'{path}' is not about '{unit.name}': {_ANEW}")
        solution, partner_weights, biases = (
            tables[table] for table in ("solution", "partner weights", "partner biases")
        )
        readers = tuple(solution[f"reader {i}"] for i in range(len(solution) - 3))
        partners = {node: (weight, biases[node]) for node, weight in partner_weights.items()}
        weights = Solution(solution["weight"], solution["bias"], readers, partners)
        return Reconstruction(solution["kept"], weights, **facts)

    def keep_solved(self, index: int, unit: Unit, solved: Reconstruction) -> Reconstruction:
        """Note a unit's solution, and hand it back."""
        if self.folder is not None:
            from_first(lambda: self._keep_solved(index, unit, solved))
        return solved

    def _keep_solved(self, index: int, unit: Unit, solved: Reconstruction) -> None:
        facts = {key: getattr(solved, key) for key in ("cut_error", "error", "way", "candidates")}
        weights = {"kept": solved.kept, "weight": solved.solution.weight, "bias": solved.solution.bias}
        readers = {f"reader {i}": reader for i, reader in enumerate(solved.solution.readers)}
        tables = {
            "solution": {**weights, **readers},
            "partner weights": {node: weight for node, (weight, _) in solved.solution.partners.items()},
            "partner biases": {node: bias for node, (_, bias) in solved.solution.partners.items()},
        }
        self._write(_unit_file(index), {"unit": unit.name, **facts}, tables)

    def last(self) -> Standing | None:
        """Where the descent of all units together stood when it was last kept."""
        return None if self.folder is None else from_first(self._last)

    def _last(self) -> Standing | None:
        if self.folder is None or not (path := self.folder / TOGETHER).exists():
            return None
        facts, tables = _read(path)
        return Standing(facts["steps"], tables["standing"])

    def keep(self, standing: Standing) -> None:
        """Note where that descent stands. Processes keep different time, and the first alone writes."""
        if self.folder is not None and is_first():
            self._write(TOGETHER, {"steps": standing.steps}, {"standing": standing.tensors})

    def _write(self, name: str, facts: dict[str, Any], tables: Tables) -> None:
        """One file: tensors by table and row, and the facts and names of rows in its head."""
        if self.folder is None:
            return
        rows = {table: list(named) for table, named in tables.items()}
        tensors = {
            f"{table}/{i}": tensor.detach().clone(memory_format=torch.contiguous_format)
            for table, named in tables.items()
            for i, tensor in enumerate(named.values())
        }
        head = json.dumps({"facts": facts, "rows": rows})
        data = save(tensors, {"ldrf": head, "sha256": _digest(head, tensors)})
        with disk_errors_as_sentence(f"write '{self.folder / name}'", REMEDY):
            write_whole(self.folder / name, data)


def open_journal(folder: str | Path | None, resume: bool, force: bool = False) -> Journal:
    """The journal in ``folder``, which must be free (:func:`check_free`)."""
    if folder is None:
        if resume:
            raise LdrfError("resume=True needs out=, the folder of the run to go on with.")
        return Journal()
    folder = Path(folder).expanduser()
    from_first(lambda: check_free(folder, resume, force))
    return Journal(folder / JOURNAL)


def check_free(folder: Path, resume: bool = False, force: bool = False) -> None:
    """Raise, before the work, where a result must not be written: the same for calls and commands.

    A folder must be new or empty; or hold an unfinished run, with ``resume``; or, with ``force``, an earlier result or
    an unfinished run, which is thrown away.
    """
    check_place(folder)
    if unfinished(folder):
        if resume:
            return
        if not force:
            units = len(list((folder / JOURNAL).glob("unit-*.safetensors")))
            raise LdrfError(
                f"'{folder}' holds an unfinished run, {units} of its units done: go on with it by resume=True "
                "(--resume), name another folder, or throw it away by force=True (--force)."
            )
        discard(folder)
    if resume and (folder / RECORD).is_file():
        raise LdrfError(f"'{folder}' holds a finished result: there is nothing to resume.")
    check_replaceable(folder, force)


def discard(folder: Path) -> None:
    """Throw an unfinished run away, unless another process is at it."""
    check_place(folder)
    if unfinished(folder):
        with disk_errors_as_sentence(f"clear '{folder / JOURNAL}' away"):
            held = Lock(folder / JOURNAL)
            shutil.rmtree(folder / JOURNAL)
            held.release()


def check_belongs(folder: Path, record: dict[str, Any]) -> None:
    """Raise where ``folder`` holds an unfinished run that did not lead to the result so described."""
    if unfinished(folder):
        settings = _read_settings(folder / JOURNAL / SETTINGS)
        if any(settings.get(key) != record.get(key) for key in ("method", "target", "images", "seed")):
            raise LdrfError(f"Cannot save to '{folder}': it holds the unfinished run of another result.")


def _unit_file(index: int) -> str:
    return f"unit-{index:04d}.safetensors"


_ANEW = "delete the folder's journal to start anew."


def _read_settings(path: Path) -> dict[str, Any]:
    try:
        content = read_json(path)
        if content["format"] != FORMAT:
            raise LdrfError(f"'{path}' was written by another version of ldrf: {_ANEW}")
        return dict(content["settings"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as problem:
        raise LdrfError(f"'{path}' is damaged: {_ANEW}") from problem


def _read(path: Path) -> tuple[dict[str, Any], Tables]:
    """The facts and tables of a file of this journal, its checksum checked."""
    try:
        with safe_open(path, "pt") as file:
            head = dict(file.metadata() or {})
            # Clones lie in memory as fresh tensors do, and sums come out the same.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        if head["sha256"] != _digest(head["ldrf"], tensors):
            raise ValueError("its checksum is another")
        content = json.loads(head["ldrf"])
        tables = {t: {row: tensors[f"{t}/{i}"] for i, row in enumerate(rows)} for t, rows in content["rows"].items()}
        return content["facts"], tables
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, RecursionError) as problem:
        raise LdrfError(f"'{path}' is damaged ({problem}): {_ANEW}") from problem


def _digest(head: str, tensors: dict[str, Tensor]) -> str:
    return hashlib.sha256((head + fingerprint(sorted(tensors.items()))).encode()).hexdigest()
