"""The figures at the top of the report, and the settings at its end, in words."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ldrf.report.runs import Pair, ReportedRun

GAP = "\N{NO-BREAK SPACE}"


@dataclass(frozen=True)
class Tile:
    """One headline figure: what it is, the figure, and what stands behind it."""

    title: str
    figure: str
    detail: str
    note: str = ""


def tiles(run: ReportedRun) -> list[Tile]:
    """MACs, parameters, latency and accuracy of the slim network against the dense one."""
    return [_accuracy(run), _cost("MACs", run.macs), _cost("Parameters", run.parameters), _latency(run)]


def _accuracy(run: ReportedRun) -> Tile:
    if run.top1 is None or run.drop is None:
        return Tile("Top-1", "–", "not measured")
    top5 = f"top-5 {percent(run.top5.slim)}, dense {percent(run.top5.dense)}; " if run.top5 else ""
    note = f"{points(-run.drop)}; {top5}{run.tested:,} test images"
    return Tile("Top-1", percent(run.top1.slim), f"dense {percent(run.top1.dense)}", note)


def _cost(title: str, pair: Pair) -> Tile:
    return Tile(title, f"{pair.ratio:.2f}× fewer", f"{short(pair.dense)} → {short(pair.slim, pair.dense)}")


def _latency(run: ReportedRun) -> Tile:
    if run.latency is None:
        return Tile("Latency", "–", "not measured")
    detail = f"{_milliseconds(run.latency.dense)} → {_milliseconds(run.latency.slim)}{GAP}ms"
    figure = f"{run.latency.ratio:.2f}× faster" if run.latency.ratio >= 1 else f"{1 / run.latency.ratio:.2f}× slower"
    return Tile("Latency", figure, detail, timing(run))


def _milliseconds(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def timing(run: ReportedRun) -> str:
    """How the latency was measured."""
    said = {"images": "image{} at a time", "threads": "thread{}"}
    known = {key: count for key, count in run.timing.items() if key in said}
    where = [f"{run.time.runtime} {run.time.version}"] if run.time is not None else []
    return ", ".join(
        [*where, *(f"{count} {said[key].format('' if count == 1 else 's')}" for key, count in known.items())]
    )


def short(count: float, beside: float = 0) -> str:
    """A large number with few digits, such as 155.1 M, in the unit of a larger one that stands ``beside`` it."""
    for size, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if max(count, beside) >= size:
            return f"{count / size:.{1 if count >= 10 * size else 2}f}{GAP}{name}"
    return f"{count:,.0f}"


def percent(share: float) -> str:
    return f"{share:.2f}{GAP}%"


def points(change: float) -> str:
    """A change of accuracy in points, with a true minus sign."""
    return f"{round(change, 2) + 0.0:+.2f}{GAP}points".replace("-", "\N{MINUS SIGN}")


def settings(run: ReportedRun) -> dict[str, dict[str, str]]:
    """What the run was asked for and made with, in groups."""
    source = {key: value for key, value in run.source.items() if value is not None}
    return {
        "Asked for": _words(run.target | source | {"calibration images": run.images}),
        "Settings": _words(run.config),
        "Seconds": {stage: f"{value:,.1f}" for stage, value in run.seconds.items()},
        "Versions": dict(run.versions),
    }


def _words(values: Mapping[str, Any]) -> dict[str, str]:
    return {str(name).replace("_", " "): _word(value) for name, value in values.items()}


def _word(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_word(part)}" for name, part in value.items())
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "not set"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:g}" if isinstance(value, float) else str(value)
