"""Several runs side by side: which belong to one line of accuracy against speed-up (the paper's Fig. 5)."""

from collections import defaultdict
from collections.abc import Sequence

from ldrf.report.plots import Point, Series
from ldrf.report.runs import ReportedRun

WAYS = ("solver", "selection", "allocation", "steps")  # settings that make another line


def series_of(runs: Sequence[ReportedRun]) -> list[Series]:
    """One line for each network and way of pruning it; runs without an accuracy are left out."""
    measured = [run for run in runs if run.top1 is not None]
    groups: dict[tuple[str, ...], list[ReportedRun]] = defaultdict(list)
    for run in measured:
        groups[run.model, *_way(run, _differing(measured))].append(run)
    return [_series(" ".join(key), members) for key, members in groups.items()]


def _differing(runs: Sequence[ReportedRun]) -> list[str]:
    """The settings in which these runs are not all alike."""
    return [name for name in WAYS if len({str(run.config.get(name)) for run in runs}) > 1]


def _way(run: ReportedRun, names: Sequence[str]) -> list[str]:
    return [f"{run.config.get(name)} {name}" if name == "steps" else str(run.config.get(name)) for name in names]


def _series(label: str, runs: Sequence[ReportedRun]) -> Series:
    points = [Point(run.speedup, run.top1.slim, str(run.folder)) for run in runs if run.top1 is not None]
    dense = next(run.top1.dense for run in runs if run.top1 is not None)
    return Series(label, dense, tuple(sorted(points, key=lambda p: p.speedup)))
