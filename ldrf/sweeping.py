"""Many slim networks from one survey of the dense one, each handed out as it is done."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from ldrf.budget import Evaluate, Judge, check_parts, judge, of_whole, read_budget
from ldrf.calibration.parts import PartsOf
from ldrf.config import Deployment, PruneConfig
from ldrf.errors import LdrfError, OutOfReach
from ldrf.events import OnEvent
from ldrf.files.result_folders import RECORD, unfinished
from ldrf.pipeline import pruned
from ldrf.result import PruneResult
from ldrf.run import Start, begin_run, hand_out, read_whole_or_parts
from ldrf.runtime.device import Device
from ldrf.saving.journal import open_journal
from ldrf.units.targets import Ignore, Target, read_target


@dataclass(frozen=True)
class Point:
    """One target of a sweep: its name, the slim network, and the points it lost.

    ``result`` is None where the target is out of reach, or was reached by an earlier run; ``reason`` says so.
    """

    name: str
    result: PruneResult | None
    drop: float | None
    reason: str = ""


@dataclass(frozen=True)
class Asked:
    """One target by name: a ratio, or a budget of points."""

    name: str
    target: Target | None
    max_drop: float | None = None


def sweep(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    speedup: Sequence[float] = (),
    params: Sequence[float] = (),
    latency: Sequence[float | str] = (),
    max_drop: Sequence[float] = (),
    deployment: Deployment | None = None,
    evaluate: Evaluate | None = None,
    ignore: Ignore = (),
    parts: Sequence[str] | None = None,
    method: str = "ldrf",
    config: PruneConfig | None = None,
    seed: int | None = None,
    on_event: OnEvent | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    save: bool = True,
    device: Device | None = None,
) -> Iterator[Point]:
    """Prune ``model`` towards every target named, and yield each slim network with the points it loses.

    The arguments are those of :func:`ldrf.prune`, with several values for a target. What is lost is told by
    ``evaluate(model)``, or by agreement with ``model`` on held-out images. ``out`` is a folder that holds the folder of
    each result; with ``resume`` those that are done are passed over, and one that was killed goes on.
    With ``parts`` only ``evaluate`` tells what is lost: agreement is that of a model that is traced whole.
    """
    asked = read_asked(speedup, params, latency, max_drop, deployment)
    read_budget(0.0, evaluate, deployment)  # a wrong function is told here
    folders = {one.name: None if out is None else Path(out).expanduser() / one.name for one in asked}
    for folder in folders.values():
        if folder is not None and not resume and (_is_done(folder) or unfinished(folder)):
            raise LdrfError(
                f"'{folder}' holds an earlier result: go on with resume=True (--resume), or name another folder."
            )
    config = replace(config or PruneConfig(), **({} if seed is None else {"seed": seed}))

    def points() -> Iterator[Point]:
        left = [one for one in asked if not _is_done(folders[one.name])]
        for one in asked:
            if one not in left:
                yield Point(one.name, None, None, f"done before, in {folders[one.name]}")
        if left:
            start, of = read_whole_or_parts(model, batches, parts, ignore, method, config, device, several=True)
            judged = judge(start.network, of_whole(evaluate, of)) if of is None or evaluate else None
            for one in left:
                yield _point(one, start, of, judged, deployment, on_event, folders[one.name], resume, save)

    return points()


def _is_done(folder: Path | None) -> bool:
    return folder is not None and (folder / RECORD).exists()


def _point(
    one: Asked,
    start: Start,
    of: PartsOf | None,
    judged: Judge | None,
    deployment: Deployment | None,
    on_event: OnEvent | None,
    folder: Path | None,
    resume: bool,
    save: bool,
) -> Point:
    budget = read_budget(one.max_drop, judged.evaluate if judged and one.max_drop is not None else None, deployment)
    if budget and of:
        check_parts(budget)
    target = budget.first if budget else one.target
    assert target is not None
    try:
        journal = open_journal(folder, resume and folder is not None and unfinished(folder))
        run = begin_run(start, target, journal, on_event=on_event)
        result = budget.fastest(run, pruned) if budget else pruned(run)
    except OutOfReach as problem:
        return Point(one.name, None, None, str(problem))
    handed = hand_out(result, run, folder if save else None, of)
    drop = judged.drop(result.model) if judged else None
    run.tell("point", name=one.name, drop=drop, speedup=handed.speedup)
    return Point(one.name, handed, drop)


def read_asked(
    speedup: Sequence[float],
    params: Sequence[float],
    latency: Sequence[float | str],
    max_drop: Sequence[float],
    deployment: Deployment | None,
) -> list[Asked]:
    """Every target once, the mildest first, under a name that is good for a folder."""
    asked = [Asked(f"speedup-{ratio:g}x", read_target(speedup=ratio)) for ratio in sorted(speedup)]
    asked += [Asked(f"params-{ratio:g}x", read_target(params=ratio)) for ratio in sorted(params)]
    for value in latency:
        name = f"latency-{value:g}x" if not isinstance(value, str) else f"latency-{value.replace(' ', '')}"
        asked.append(Asked(name, read_target(latency=value, deployment=deployment)))
    for points in sorted(max_drop):
        read_budget(points, None, deployment)
        asked.append(Asked(f"max-drop-{points:g}", None, points))
    if not asked:
        raise LdrfError("A sweep needs targets: give speedup=, params=, latency= or max_drop=, with several values.")
    return list({one.name: one for one in asked}.values())
