"""``ldrf repeat``: make a result again, and compare."""

import contextlib
import io
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import ldrf
from ldrf.cli.arguments.prune import Prune
from ldrf.cli.arguments.repeat import Repeat
from ldrf.cli.output import Report, facts
from ldrf.cli.provenance import checksum, environment, files
from ldrf.cli.prune import open_calibration, prune_as
from ldrf.config import Deployment
from ldrf.data.plugins import is_factory
from ldrf.errors import LdrfError
from ldrf.files.record import read_record
from ldrf.result import PruneResult
from ldrf.saving.journal import check_free

DIFFERS = 3
THREADS = 256  # more than that is no count of threads


def run(arguments: Repeat) -> Report:
    """Check, prune again, compare."""
    if arguments.out is not None:
        check_free(arguments.out)
    record = read_record(arguments.folder)
    command, noted = _recorded(arguments, record)
    _check_files(arguments.folder, noted, command)
    named, batches = open_calibration(command)
    with _threads(noted), tempfile.TemporaryDirectory(prefix="ldrf-repeat-") as temporary:
        made = prune_as(command, named.model, batches, out=arguments.out or Path(temporary) / "again")
    differences = _compared(ldrf.load(arguments.folder, named.model), made, record, noted)
    return Report(differences, [facts(_rows(differences))], code=0 if differences["same_bits"] else DIFFERS)


def _recorded(arguments: Repeat, record: dict[str, Any]) -> tuple[Prune, dict[str, Any]]:
    """The command that made the folder, with what is given otherwise now, and what was noted of its run."""
    folder, noted = arguments.folder, record.get("run")
    if "finetune" in record:
        raise LdrfError(f"'{folder}' was fine-tuned: repeat the pruned result that it was made from.")
    if not isinstance(noted, dict) or not isinstance(noted.get("argv"), list) or noted["argv"][:1] != ["prune"]:
        raise LdrfError(f"'{folder}' does not say which command made it: only results of 'ldrf prune' can be repeated.")
    command = _with_widths(_read(folder, [str(part) for part in noted["argv"]]), record)
    given = {name: getattr(arguments, name) for name in ("model", "architecture", "data", "weights")}
    for name in ("model", "architecture", "data"):
        recorded = getattr(command, name)
        if given[name] is None and recorded is not None and is_factory(recorded):
            # A folder from elsewhere must not decide which code is run here.
            raise LdrfError(f"'{folder}' was made with '{recorded}': to run that file, add --{name} {recorded}.")
    return replace(command, **{name: value for name, value in given.items() if value is not None}), noted


def _with_widths(command: Prune, record: dict[str, Any]) -> Prune:
    """A command that asks for a latency, with the widths that it came to: the clock says something else every time."""
    if command.latency is None:
        return command
    widths = tuple(f"{name}={width}" for name, width in _table(record, "widths").items())
    return replace(command, latency=None, deployment=Deployment(), widths=widths)


def _check_files(folder: str, noted: dict[str, Any], command: Prune) -> None:
    """Every file of weights or code must be there, and be what it was."""
    for role, file in files(command).items():
        if checksum(file) != _table(_table(noted, "files"), role).get("sha256"):
            raise LdrfError(f"'{file}' is not what '{folder}' was made with: its contents have changed.")


def _read(folder: str, argv: list[str]) -> Prune:
    """The recorded command line, understood or refused."""
    from ldrf.cli.commands import read_command

    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            return read_command([*argv, "--out", folder])
    except SystemExit as problem:
        raise LdrfError(f"This version of ldrf does not understand the command that made '{folder}'.") from problem


def _table(record: dict[str, Any], name: str) -> dict[str, Any]:
    """A table of a record, empty where something else stands in its place."""
    table = record.get(name)
    return table if isinstance(table, dict) else {}


@contextlib.contextmanager
def _threads(run: dict[str, Any]) -> Iterator[None]:
    """As many threads as the run had: sums split over more of them come out in other bits."""
    now = torch.get_num_threads()
    then = _table(run, "environment").get("threads")
    try:
        if type(then) is int and 0 < then <= THREADS:
            torch.set_num_threads(then)
        yield
    finally:
        torch.set_num_threads(now)


def _compared(before: nn.Module, made: PruneResult, record: dict[str, Any], run: dict[str, Any]) -> dict[str, Any]:
    """What is the same and what is not, ready for JSON."""
    old, new = before.state_dict(), made.model.state_dict()
    now, then = environment() | made.versions, _table(run, "environment") | _table(record, "versions")
    then = {"device": "cpu", **then}  # older folders do not name it: there was no other
    now["threads"] = then.get("threads", now["threads"])  # as the run was repeated
    sums = _table(record, "checksums")
    return {
        "same_bits": list(old) == list(new) and all(_same(old[name], new[name]) for name in old),
        "largest_difference": _largest(old, new),
        "same_widths": record.get("widths") == made.widths,
        "same_weights": sums.get("weights") == made.checksums["weights"],
        "same_images": sums.get("inputs") == made.checksums["inputs"],
        "versions": {n: [then.get(n), now.get(n)] for n in {**then, **now} if then.get(n) != now.get(n)},
        "command": run.get("command"),
    }


def _same(one: Tensor, other: Tensor) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and torch.equal(one, other)


def _largest(old: dict[str, Tensor], new: dict[str, Tensor]) -> float | None:
    """The largest difference of two numbers in the same place, or None where shapes differ."""
    if old.keys() != new.keys() or any(old[n].shape != new[n].shape for n in old):
        return None
    return max((float((old[n].double() - new[n].double()).abs().max()) for n in old if old[n].numel()), default=0.0)


def _rows(differences: dict[str, Any]) -> dict[str, str]:
    largest = differences["largest_difference"]
    rows = {
        "bits of the slim model": _same_or_not(differences["same_bits"]),
        "largest difference": "shapes differ" if largest is None else f"{largest:.3g}",
        "widths": _same_or_not(differences["same_widths"]),
        "weights of the dense model": _same_or_not(differences["same_weights"]),
        "calibration images": _same_or_not(differences["same_images"]),
    }
    return rows | {name: f"{then} then, {now} now" for name, (then, now) in differences["versions"].items()}


def _same_or_not(same: bool) -> str:
    return "the same" if same else "different"
