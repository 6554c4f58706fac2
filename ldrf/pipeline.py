"""The whole method in order: this file reads as the paper's Algorithm 1 and does nothing else."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ldrf.budget import Evaluate, check_alone, check_not_resumed, read_budget
from ldrf.calibration.network import read_network
from ldrf.calibration.survey import layer_inputs, survey
from ldrf.config import Deployment, PruneConfig, check_known
from ldrf.errors import LdrfError
from ldrf.events import OnEvent
from ldrf.planning.curves import output_curves, priced_branches, removal_curves
from ldrf.planning.findings import Findings
from ldrf.planning.plan import plan_widths
from ldrf.planning.ranks import Analysis, rank_layers
from ldrf.recomposition.best import Chosen, choose
from ldrf.recomposition.recompose import output_statistics, recompose
from ldrf.recomposition.verification import verify
from ldrf.reconstruction.all_units import reconstruct_together, same_weights
from ldrf.reconstruction.lockstep import Lockstep
from ldrf.reconstruction.metric import unit_metrics
from ldrf.reconstruction.refitting import refit_outputs
from ldrf.reconstruction.solution import commit_solution
from ldrf.result import PruneResult
from ldrf.run import Run, begin_run, hand_out, read_whole_or_parts
from ldrf.runtime.device import Device
from ldrf.runtime.processes import agreed
from ldrf.runtime.progress import Clock, progress
from ldrf.saving.journal import open_journal
from ldrf.tracing.interpreter import Weights
from ldrf.units.branches import left_out, outside
from ldrf.units.indices import as_it_stands
from ldrf.units.targets import Ignore, read_target


def prune(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    speedup: float | None = None,
    params: float | None = None,
    widths: Mapping[str, int] | None = None,
    keep: Mapping[str, float] | None = None,
    objective: tuple[str, float] | None = None,
    latency: float | str | None = None,
    deployment: Deployment | None = None,
    max_drop: float | None = None,
    evaluate: Evaluate | None = None,
    ignore: Ignore = (),
    parts: Sequence[str] | None = None,
    method: str = "ldrf",
    config: PruneConfig | None = None,
    seed: int | None = None,
    on_event: OnEvent | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    force: bool = False,
    save: bool = True,
    device: Device | None = None,
    **unknown: object,
) -> PruneResult:
    """Make ``model`` cheaper without retraining it (Algorithm 1); the model given is not changed.

    ``batches`` yields calibration inputs as a DataLoader does; labels are ignored. Say what to reach with one of
    ``speedup`` (dense MACs / slim MACs), ``params`` (the same for parameters), ``widths`` (neurons per layer),
    ``keep`` (share of neurons per layer), ``objective`` (the name of any objective, and the ratio) or ``latency``:
    dense time / slim time as measured where ``deployment`` says the network will run, or a time such as ``"4 ms"``.
    Or say what it may cost: ``max_drop=1.0`` finds the fastest network (by ``deployment`` where that is given, else by
    MACs) that loses at most so many points of ``evaluate(model)``, or of agreement with ``model`` on held-out images.
    ``ignore`` names layers, globs or is a function ``(name, module) -> bool``.
    ``parts`` names submodules to prune in place where the model cannot be traced whole. They are calibrated on what
    they read while the whole model runs on ``batches``, which may then be whatever it takes, such as lists of images.
    ``method`` is the paper's own or a rival to compare with, by the name of its file in :mod:`ldrf.methods`.
    ``on_event`` is called as ``(event, data)`` on the way; :mod:`ldrf.events` lists the events.
    ``out`` is a folder in which every finished unit is noted, and where the result is saved at the end; a run that was
    killed goes on there with ``resume``; what is there already is replaced only with ``force``.
    With ``save=False`` that waits for your own ``ldrf.save(result, out, ...)``.
    ``device`` is where to compute: "auto", "cuda:0", ...; by default where the model is. Either way the slim model
    comes back where the model is.
    """
    check_known(unknown)
    config = replace(config or PruneConfig(), **({} if seed is None else {"seed": seed}))
    budget = read_budget(max_drop, evaluate, deployment)
    target = budget.first if budget else read_target(speedup, params, widths, keep, objective, latency, deployment)
    if budget:
        check_alone(speedup=speedup, params=params, widths=widths, keep=keep, objective=objective, latency=latency)
        check_not_resumed(resume)
    journal, clock = open_journal(out, resume, force), Clock(shown=budget is None)
    start, of = read_whole_or_parts(model, batches, parts, ignore, method, config, device, budget is not None)
    budget = budget.of_parts(of) if budget and of else budget
    run = begin_run(start, target, journal, clock, on_event)
    result = budget.fastest(run, pruned) if budget else pruned(run)
    return hand_out(result, run, out if save else None, of)


def pruned(run: Run) -> PruneResult:
    """Algorithm 1: learn the ranks and widths, reconstruct unit by unit, recompose."""
    run, findings = run.with_room(lambda run: run.learned(stage_1))
    run, (walk, kept, together) = run.with_room(lambda run: stage_2(run, findings))
    run, (slim, best) = run.with_room(lambda run: stage_3(run, walk, kept, together))
    return run.finished(slim, best, kept, findings)


def stage_1(run: Run) -> Findings:
    """Every layer's rank gives the range of its width (Eqn. 5); error curves choose a width for each unit."""
    network, config = run.for_units, run.config
    surveys = run.once(
        "surveys",
        lambda: survey(network.trace, network.dense, network.units, network.calibration, config.seed, progress),
    )
    removals = run.once(
        "removals", lambda: removal_curves(network, run.target, surveys, config, run.method.picks_by_curves)
    )
    errors = {name: removal.errors for name, removal in removals.items()}
    curves = partial(run.once, "curves", lambda: output_curves(network, surveys, removals, config))
    priced = partial(run.once, "branches", lambda: priced_branches(network))
    plan = agreed(plan_widths(network, run.target, run.ranks, errors, curves, config, run.deployed, priced))
    metrics = run.once("metrics", lambda: unit_metrics(network, surveys, config))
    surveys = {name: replace(seen, moments=[]) for name, seen in surveys.items()}  # Gram matrices are done with
    return Findings(plan, surveys, removals, metrics)


def stage_2(run: Run, findings: Findings) -> tuple[Lockstep, dict[str, Tensor], Weights | None]:
    """Cut and reconstruct unit by unit, dense and slim network side by side (Eqn. 6); then all units together."""
    network, method, config = run.for_units, run.method, run.config
    kept: dict[str, Tensor] = {}
    gone = left_out(network.branches, findings.plan.widths)
    step = method.begin(network, findings, config)
    with run.store() as store:
        walk = Lockstep(network.trace, network.dense, network.calibration, store)
        for index, unit in run.units():
            width, kept[unit.name] = findings.plan.widths[unit.name], torch.arange(unit.width)
            walk.leave_out(gone, unit)
            if not width or (width == unit.width and not (walk.diverged and method.repairs_all)):
                continue
            walk.advance(unit.start)
            unit = outside(as_it_stands(unit, network.units, kept), gone)
            solved = run.solved(index, unit, lambda unit=unit, width=width: step(walk, unit, width))
            kept[unit.name] = solved.kept
            commit_solution(walk, unit, solved.kept, solved.solution)
        if method.repairs_all:
            refit_outputs(walk, network.units, network.protected, config)  # the last layer, after the loop
    run.clock("reconstruct")
    # Not in the paper: Eqn. 6 for all units at once, from what was found one by one.
    together = (
        same_weights(reconstruct_together(run.network, walk, config, run.journal)) if method.repairs_all else None
    )
    run.clock("together")
    return walk, kept, together


def stage_3(run: Run, walk: Lockstep, kept: dict[str, Tensor], together: Weights | None) -> tuple[nn.Module, Chosen]:
    """Recompose W' = Q' R' in a copy of the user's model, its norms restored; never worse than a plain cut."""
    network = run.network
    best = choose(network, walk, kept, run.method.repairs_all, together)
    statistics = output_statistics(network.trace, best.weights, best.changed, network.calibration)
    slim = recompose(network, best.weights, best.changed, kept, statistics)
    verify(network, best.weights, slim)
    return slim, best


def analyze(
    model: nn.Module, batches: Iterable[Any], energy: float = 0.65, *, device: Device | None = None
) -> Analysis:
    """Ranks and ranges of every conv and linear layer at ``energy`` (Tab. 1 and the supplement's table).

    It computes on ``device``, by default where the model is.
    """
    if not 0 < energy <= 1:
        raise LdrfError(f"The 'energy' must be above 0 and at most 1. Got {energy!r} instead.")
    config = PruneConfig()
    network = read_network(model, batches, (), config, True, device)
    inputs = layer_inputs(network.trace, network.dense, network.calibration, config.seed, progress)
    return rank_layers(network, inputs, energy)
