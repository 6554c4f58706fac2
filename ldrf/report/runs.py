"""A result folder as the report needs it: read once, checked, and turned into plain numbers."""

import base64
import binascii
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ldrf.deployment.latency import Latency
from ldrf.errors import LdrfError
from ldrf.files.record import read_record
from ldrf.files.result_folders import DETAILS
from ldrf.files.strict_json import read_json

PNG = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True)
class Pair:
    """One quantity of the dense and of the slim network."""

    dense: float
    slim: float

    @property
    def ratio(self) -> float:
        return self.dense / self.slim if self.slim else math.inf


@dataclass(frozen=True)
class UnitRow:
    """One unit: its widths, its rank, its errors where it was reconstructed, its spectrum and error curve if kept."""

    name: str
    full: int
    width: int
    rank: int
    cut_error: float | None
    error: float | None
    way: str
    spectrum: tuple[float, ...]
    curve: tuple[float, ...]

    @property
    def share(self) -> float:
        return self.width / self.full


@dataclass(frozen=True)
class Sheet:
    """Feature maps side by side in one PNG (base64), and how many of how many they are."""

    png: str
    maps: int
    shown: int


@dataclass(frozen=True)
class Maps:
    """Feature maps of one unit on one image, seen behind the module ``behind``."""

    unit: str
    behind: str
    image: str | None
    dense: Sheet
    slim: Sheet


@dataclass(frozen=True)
class Shipping:
    """What each step of a release gained and cost, by the name of the network it gave."""

    rows: tuple[dict[str, Any], ...]  # name, agreement, top1, milliseconds, bytes
    judged: int
    runtime: str
    notes: tuple[str, ...]
    seconds: dict[str, float]
    file: str


@dataclass(frozen=True)
class ReportedRun:
    """Everything the page shows about one result folder; what was not measured is None or empty."""

    folder: Path
    kind: str
    speedup: float
    macs: Pair
    parameters: Pair
    latency: Pair | None
    timing: dict[str, Any]
    top1: Pair | None
    top5: Pair | None
    agreement: float | None  # percent of images on which both give the same answer
    tested: int
    images: int
    units: tuple[UnitRow, ...]
    skipped: tuple[tuple[str, str], ...]
    curves_of: str
    maps: Maps | None
    source: dict[str, Any]
    target: dict[str, Any]
    config: dict[str, Any]
    seconds: dict[str, float]
    versions: dict[str, str]
    shipping: Shipping | None  # of a release
    time: Latency | None  # where the time goes, of a run by latency
    detailed: bool  # whether report.json lies beside ldrf.json

    @property
    def model(self) -> str:
        """The name the dense model was asked for by, or its class."""
        return str(self.source.get("model") or self.kind)

    @property
    def drop(self) -> float | None:
        """Points of top-1 lost."""
        return None if self.top1 is None else self.top1.dense - self.top1.slim

    @property
    def score(self) -> Pair | None:
        """What the networks are compared by: top-1 where it was measured, or else agreement with the dense one."""
        agreed = None if self.agreement is None else Pair(100.0, self.agreement)
        return self.top1 or agreed


def read_run(folder: str | Path) -> ReportedRun:
    """Read ``ldrf.json`` and, where it is there, ``report.json`` of a result folder."""
    folder = Path(folder).expanduser()
    record = read_record(folder)
    details = _read_details(folder / DETAILS)
    try:
        return _run(folder, record, details)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as problem:
        what = repr(problem)[:200]  # it may quote what stands there, however long that is
        raise LdrfError(f"'{folder}' is damaged: its record is not as ldrf writes it ({what}).") from problem


def _read_details(path: Path) -> dict[str, Any]:
    try:
        details = read_json(path)
    except FileNotFoundError:
        return {}
    except (ValueError, OSError) as problem:
        raise LdrfError(f"'{path}' is damaged: {problem}; delete it to do without.") from problem
    if not isinstance(details, dict):
        raise LdrfError(f"'{path}' is damaged: it is not a JSON object; delete it to do without.")
    return details


def _run(folder: Path, record: dict[str, Any], details: dict[str, Any]) -> ReportedRun:
    metrics, accuracy = record["metrics"], record["metrics"].get("accuracy") or {}
    return ReportedRun(
        folder=folder,
        kind=str(record["class"]),
        speedup=_number(record["speedup"]),
        macs=_pair(metrics["macs"]),
        parameters=_pair(metrics["parameters"]),
        latency=_pair(metrics["latency_ms"]) if "latency_ms" in metrics else None,
        timing={key: int(value) for key, value in metrics.get("timing", {}).items()},
        top1=_pair(accuracy) if "slim" in accuracy else None,
        top5=_pair(accuracy, "_top5") if "slim_top5" in accuracy else None,
        agreement=_number(metrics["agreement"]["slim"]) if "agreement" in metrics else None,
        tested=int(accuracy.get("images", 0)),
        images=int(record["images"]),
        units=_units(record, details),
        skipped=tuple((str(s["name"]), str(s["reason"])) for s in record["skipped"]),
        curves_of=str(details.get("curves_of", "")),
        maps=_maps(details["featuremaps"]) if details.get("featuremaps") else None,
        source=dict(record.get("source") or {}),
        target=dict(record.get("target") or {}),
        config=dict(record["config"]),
        seconds={str(stage): _number(value) for stage, value in record["seconds"].items()},
        versions={str(name): str(value) for name, value in record["versions"].items()},
        shipping=_shipping(metrics["shipped"]) if metrics.get("shipped") else None,
        time=_time(record["latency"]) if record.get("latency") else None,
        detailed=bool(details),
    )


def _shipping(stored: Mapping[str, Any]) -> Shipping:
    def row(values: Mapping[str, Any]) -> dict[str, Any]:
        numbers = {k: None if v is None else _number(v) for k, v in values.items() if k != "name"}
        if not (numbers["milliseconds"] or 0) > 0:
            raise ValueError("milliseconds above 0 were expected")
        return {"name": str(values["name"]), **numbers}

    return Shipping(
        rows=tuple(row(values) for values in stored["rows"]),
        judged=int(stored["judged"]),
        runtime=str(stored["runtime"]),
        notes=tuple(str(note) for note in stored["notes"]),
        seconds={str(name): _number(value) for name, value in stored["seconds"].items()},
        file=str(stored["file"]),
    )


def _time(stored: Mapping[str, Any]) -> Latency:
    """What was measured of the time; a folder may come from elsewhere, so every number must be one."""
    latency = Latency.from_dict(stored)
    numbers = [latency.dense, latency.slim, *(v for x in latency.layers for v in (x.dense, x.slim))]
    if not all(_number(value) > 0 for value in numbers):
        raise ValueError("milliseconds above 0 were expected")
    [_number(value) for pair in latency.expected for value in pair]
    return replace(latency, runtime=str(latency.runtime), version=str(latency.version), batch=int(latency.batch))


def _units(record: dict[str, Any], details: dict[str, Any]) -> tuple[UnitRow, ...]:
    history = {h["name"]: h for h in record["history"]}
    spectra, curves = details.get("spectra", {}), details.get("curves", {})
    return tuple(
        UnitRow(
            name=str(name),
            full=_count(full),
            width=_count(record["widths"][name], least=0),
            rank=_count(record["ranks"][name]),
            cut_error=_error(history, name, "cut_error"),
            error=_error(history, name, "error"),
            way=_way(history, name, record["widths"][name]),
            spectrum=_line(spectra.get(name, ())),
            curve=_line(curves.get(name, ())),
        )
        for name, full in record["full_widths"].items()
    )


def _way(history: Mapping[str, Any], name: str, width: Any) -> str:
    """How a unit was solved, in words."""
    if not int(width):
        return "left out"
    noted = history.get(name)
    if noted is None or (noted["way"] == "cut" and noted.get("full") == int(width)):
        return "left whole"
    return str(noted["way"])


def _count(value: Any, least: int = 1) -> int:
    if int(value) < least:
        raise ValueError(f"a number of neurons was expected, got {value!r}")
    return int(value)


def _error(history: Mapping[str, Any], name: str, key: str) -> float | None:
    """A unit's held-out error, or None where it has none that is a number."""
    value = history[name][key] if name in history else None
    return None if value is None else _number(value)


def _line(values: Any) -> tuple[float, ...]:
    """Numbers to draw, or nothing where one of them was not finite."""
    return () if None in values else tuple(_number(v) for v in values)


def _pair(figures: Mapping[str, Any], suffix: str = "") -> Pair:
    return Pair(_number(figures[f"dense{suffix}"]), _number(figures[f"slim{suffix}"]))


def _number(value: Any) -> float:
    if isinstance(value, str) or not math.isfinite(number := float(value)):
        raise ValueError(f"a finite number was expected, got {value!r}")
    return number


def _maps(stored: Mapping[str, Any]) -> Maps:
    sheets = {
        which: Sheet(_png(stored[which]["png"]), *(int(stored[which][key]) for key in ("maps", "shown")))
        for which in ("dense", "slim")
    }
    image = None if stored["image"] is None else _png(stored["image"])
    return Maps(str(stored["unit"]), str(stored["behind"]), image, **sheets)


def _png(text: Any) -> str:
    """The same base64 text, checked to be that of a PNG: a folder may come from elsewhere."""
    try:
        content = base64.b64decode(text, validate=True)
    except binascii.Error as problem:
        raise ValueError(str(problem)) from problem
    if not content.startswith(PNG):
        raise ValueError("a picture is not a PNG")
    return text
