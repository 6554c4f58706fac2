"""Several runs side by side: which belong to one line of accuracy against speed-up (the paper's Fig. 5)."""

from collections import defaultdict
from collections.abc import Sequence

from ldrf.report.plots import Point, Series
from ldrf.report.runs import ReportedRun, Shipping

WAYS = ("solver", "selection", "allocation", "steps")  # settings that make another line


MAY_LOSE = 1.0  # points that most people give for speed


def series_of(runs: Sequence[ReportedRun], by_time: bool = False) -> list[Series]:
    """One line for each network and way of pruning it, against MACs or the clock; runs without a score are left out."""
    measured = [run for run in runs if run.score is not None and (run.latency is not None or not by_time)]
    groups: dict[tuple[str, ...], list[ReportedRun]] = defaultdict(list)
    for run in measured:
        groups[run.model, *_way(run, _differing(measured))].append(run)
    return [_series(" ".join(key), members, by_time) for key, members in groups.items()]


def shipped_series(shipping: Shipping) -> tuple[list[Series], str]:
    """The networks of a release against the clock, and what they are compared by."""
    key = "top1" if all(row["top1"] is not None for row in shipping.rows) else "agreement"
    dense = shipping.rows[0]
    points = [Point(dense["milliseconds"] / row["milliseconds"], row[key], row["name"]) for row in shipping.rows[1:]]
    up = {"top1": "top-1, %", "agreement": "agreement with the dense network, %"}[key]
    return [Series(shipping.runtime, dense[key], tuple(sorted(points, key=lambda p: p.speedup)))], up


def score_name(runs: Sequence[ReportedRun]) -> str:
    """What the lines show, in the words of the plot's axis."""
    return "top-1, %" if any(run.top1 is not None for run in runs) else "agreement with the dense network, %"


def pick(runs: Sequence[ReportedRun]) -> ReportedRun | None:
    """The run to pick: the fastest that loses at most a point, or else the one that loses least."""
    lost = {id(run): run.score.dense - run.score.slim for run in runs if run.score is not None}
    known = [run for run in runs if id(run) in lost]
    fine = [run for run in known if lost[id(run)] <= MAY_LOSE]
    if fine:
        return max(fine, key=_gain)
    return min(known, key=lambda run: lost[id(run)], default=None)


def _gain(run: ReportedRun) -> float:
    return run.latency.ratio if run.latency is not None else run.speedup


def _differing(runs: Sequence[ReportedRun]) -> list[str]:
    """The settings in which these runs are not all alike."""
    return [name for name in WAYS if len({str(run.config.get(name)) for run in runs}) > 1]


def _way(run: ReportedRun, names: Sequence[str]) -> list[str]:
    return [f"{run.config.get(name)} {name}" if name == "steps" else str(run.config.get(name)) for name in names]


def _series(label: str, runs: Sequence[ReportedRun], by_time: bool) -> Series:
    points = []
    for run in runs:
        if run.score is not None:
            ratio = run.latency.ratio if by_time and run.latency is not None else run.speedup
            points.append(Point(ratio, run.score.slim, str(run.folder)))
    dense = next(run.score.dense for run in runs if run.score is not None)
    return Series(label, dense, tuple(sorted(points, key=lambda p: p.speedup)))
