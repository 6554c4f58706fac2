"""``ldrf repeat``: make a result again, and compare."""

import contextlib
import io
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import Tensor, nn
from tyro.conf import Positional, arg

import ldrf
from ldrf.cli.output import Report, facts
from ldrf.cli.provenance import checksum, environment, files
from ldrf.cli.prune import Prune, check_out
from ldrf.data.plugins import is_factory
from ldrf.errors import LdrfError
from ldrf.files.record import read_record
from ldrf.result import PruneResult

HELP = """Make a result again from what its folder says of it, and compare bit for bit; exit code 3 where it differs.

For example: ldrf repeat runs/demo"""

DIFFERS = 3
THREADS = 256  # more than that is no count of threads


@dataclass(frozen=True)
class Repeat:
    """Arguments of ``ldrf repeat``."""

    folder: Annotated[Positional[str], arg(metavar="FOLDER")]
    """Result folder, made by 'ldrf prune' or 'ldrf demo'."""
    out: Annotated[Path | None, arg(metavar="FOLDER")] = None
    """Keep what is made in this folder."""
    model: Annotated[str | None, arg(metavar="MODEL")] = None
    """The model, if it is a file.py:factory, which is run only when named here, or lies elsewhere now."""
    architecture: Annotated[str | None, arg(metavar="MODEL")] = None
    """The dense model of a result folder that was pruned again, if it is a file.py:factory."""
    data: Annotated[str | None, arg(metavar="DATA")] = None
    """The images, if they are a file.py:factory, or lie elsewhere now."""
    weights: Annotated[str | None, arg(metavar="FILE")] = None
    """Weights of the model, if they lie elsewhere now."""
    json: bool = False
    """Print one JSON object instead of the table."""

    def run(self) -> Report:
        """Check, prune again, compare."""
        if self.out is not None:
            check_out(self.out, force=False)
        record = read_record(self.folder)
        command, run = self._command(record)
        self._check_files(run, command)
        named, batches = command.opened()
        with _threads(run), tempfile.TemporaryDirectory(prefix="ldrf-repeat-") as temporary:
            made = command.pruned(named.model, batches, out=self.out or Path(temporary) / "again")
        found = _compared(ldrf.load(self.folder, named.model), made, record, run)
        return Report(found, [facts(_rows(found))], code=0 if found["same_bits"] else DIFFERS)

    def _command(self, record: dict[str, Any]) -> tuple[Prune, dict[str, Any]]:
        """The command that made the folder, with what is said otherwise here."""
        run = record.get("run")
        if "finetune" in record:
            raise LdrfError(f"'{self.folder}' was fine-tuned: repeat the pruned result that it was made from.")
        if not isinstance(run, dict) or not isinstance(run.get("argv"), list) or run["argv"][:1] != ["prune"]:
            raise LdrfError(
                f"'{self.folder}' does not say by which command it was made: "
                "only results of 'ldrf prune' can be repeated."
            )
        command = _read(self.folder, [str(part) for part in run["argv"]])
        given = {name: getattr(self, name) for name in ("model", "architecture", "data", "weights")}
        for name in ("model", "architecture", "data"):
            recorded = getattr(command, name)
            if given[name] is None and recorded is not None and is_factory(recorded):
                # A folder from elsewhere must not decide which code is run here.
                raise LdrfError(
                    f"'{self.folder}' was made with '{recorded}': to run that file, add --{name} {recorded}."
                )
        return replace(command, **{name: value for name, value in given.items() if value is not None}), run

    def _check_files(self, run: dict[str, Any], command: Prune) -> None:
        """Every file of weights or code must be there, and be what it was."""
        for role, file in files(command).items():
            if checksum(file) != _table(_table(run, "files"), role).get("sha256"):
                raise LdrfError(f"'{file}' is not what '{self.folder}' was made with: its contents have changed.")


def _read(folder: str, argv: list[str]) -> Prune:
    """The recorded command line, understood or refused."""
    from ldrf.cli.commands import read_command

    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            return read_command([*argv, "--out", folder])
    except SystemExit as problem:
        raise LdrfError(
            f"This version of ldrf does not understand the command that '{folder}' was made by."
        ) from problem


def _table(record: dict[str, Any], name: str) -> dict[str, Any]:
    """A table of a record, empty where something else stands in its place."""
    found = record.get(name)
    return found if isinstance(found, dict) else {}


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


def _rows(found: dict[str, Any]) -> dict[str, str]:
    largest = found["largest_difference"]
    told = lambda same: "the same" if same else "others"  # noqa: E731
    rows = {
        "bits of the slim model": told(found["same_bits"]),
        "largest difference": "shapes differ" if largest is None else f"{largest:.3g}",
        "widths": told(found["same_widths"]),
        "weights of the dense model": told(found["same_weights"]),
        "calibration images": told(found["same_images"]),
    }
    return rows | {name: f"{then} then, {now} now" for name, (then, now) in found["versions"].items()}
