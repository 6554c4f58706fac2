"""The whole method in order: this file reads as the paper's Algorithm 1 and does nothing else."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ldrf.calibration.network import check_prunable, read_network
from ldrf.calibration.store import ActivationStore
from ldrf.calibration.survey import layer_inputs, survey
from ldrf.config import PruneConfig, byte_count
from ldrf.errors import LdrfError
from ldrf.events import OnEvent, teller
from ldrf.methods import find_method
from ldrf.methods.method import Findings, take_labels
from ldrf.planning.plan import for_target, plan_widths, removal_curves, unit_ranks
from ldrf.planning.ranks import Analysis, rank_layers
from ldrf.recomposition.best import choose
from ldrf.recomposition.recompose import output_statistics, recompose
from ldrf.recomposition.verification import verify
from ldrf.reconstruction.all_units import reconstruct_together
from ldrf.reconstruction.lockstep import Lockstep
from ldrf.reconstruction.metric import unit_metrics
from ldrf.reconstruction.refitting import refit_outputs
from ldrf.reconstruction.solution import commit_solution
from ldrf.result import PruneResult, UnitReport, versions
from ldrf.runtime.processes import agreed
from ldrf.runtime.progress import Clock, progress
from ldrf.saving import checkpoint
from ldrf.saving.journal import Learned, open_journal
from ldrf.tracing.counting import count_macs, count_parameters
from ldrf.units.indices import as_it_stands, stated_sizes
from ldrf.units.targets import Ignore, Target, exact_widths, warn_of_odd_widths


def prune(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    speedup: float | None = None,
    params: float | None = None,
    widths: Mapping[str, int] | None = None,
    keep: Mapping[str, float] | None = None,
    ignore: Ignore = (),
    method: str = "ldrf",
    config: PruneConfig | None = None,
    seed: int | None = None,
    on_event: OnEvent | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    save: bool = True,
) -> PruneResult:
    """Make ``model`` cheaper without retraining it (Algorithm 1); the model given is not changed.

    ``batches`` yields calibration inputs as a DataLoader does; labels are ignored. Say what to reach with one of
    ``speedup`` (dense MACs / slim MACs), ``params`` (the same for parameters), ``widths`` (neurons per layer) or
    ``keep`` (share of neurons per layer). ``ignore`` names layers, globs or is a function ``(name, module) -> bool``.
    ``method`` is the paper's own or one of :data:`ldrf.methods.METHODS` to compare with.
    ``on_event`` is called as ``(event, data)`` on the way; :mod:`ldrf.events` lists the events.
    ``out`` is a folder in which every finished unit is noted, and where the result is saved at the end; a run that was
    killed goes on there with ``resume``. With ``save=False`` that waits for your own ``ldrf.save(result, out, ...)``.
    """
    journal = open_journal(out, resume)
    target, rule = Target(speedup, params, widths, keep), find_method(method)
    config = replace(config or PruneConfig(), **({} if seed is None else {"seed": seed}))
    config = replace(config, allocation=config.allocation or rule.allocation)
    clock, tell = Clock(), teller(on_event)
    batches, labels = take_labels(rule, model, batches)
    network = read_network(model, batches, ignore, config, True)
    check_prunable(network)
    journal.begin(network, target, rule.name, config, labels)
    network, spectra = for_target(network, target, config)
    exact_widths(target, network.units, network.skipped)  # a wrong name is told before the work
    warn_of_odd_widths(target, network.units, config.multiple)
    clock("trace")
    full = {u.name: u.width for u in network.units}
    tell("traced", units=list(full), skipped=[s.name for s in network.skipped])

    # Stage 1: every layer's rank, and with it the range of its width (Eqn. 5); error curves; a width for each unit.
    ranks = unit_ranks(network.units, spectra, config.energy)
    learned = journal.learned()
    if learned is None:
        surveys = survey(network.trace, network.dense, network.units, network.calibration, config.seed, progress)
        removals = removal_curves(network, target, surveys, config, rule.picks_by_curves)
        plan = agreed(plan_widths(network, target, ranks, surveys, removals, config))
        metrics = unit_metrics(network, surveys, config)
        surveys = {name: replace(found, moments=[]) for name, found in surveys.items()}  # Gram matrices are done with
        learned = journal.keep_learned(Learned(plan, surveys, removals, metrics))
    plan = learned.plan
    step = rule.begin(Findings(network, learned.surveys, learned.removals, learned.metrics, labels), config)
    clock("plan")
    tell("planned", widths=dict(plan.widths), full_widths=full)

    # Stage 2: cut and reconstruct unit by unit, dense and slim network side by side (Eqn. 6).
    kept: dict[str, Tensor] = {}
    history: list[UnitReport] = []
    with ActivationStore(network.calibration.room(byte_count(config.memory)), journal.spill) as store:
        walk = Lockstep(network.trace, network.dense, network.calibration, store)
        for index, unit in enumerate(progress(network.units, "reconstruct")):
            width, kept[unit.name] = plan.widths[unit.name], torch.arange(unit.width)
            if width == unit.width and not (walk.diverged and rule.repairs_all):
                continue
            walk.advance(unit.start)
            unit = as_it_stands(unit, network.units, kept)
            solved = journal.solved(index, unit) or journal.keep_solved(index, unit, agreed(step(walk, unit, width)))
            kept[unit.name] = solved.kept
            commit_solution(walk, unit, kept[unit.name], solved.solution)
            history.append(UnitReport.of(unit, len(kept[unit.name]), ranks[unit.name], solved))
            tell("unit", index=index, count=len(network.units), **asdict(history[-1]))
        if rule.repairs_all:
            refit_outputs(walk, network.units, network.protected, config)  # the last layer, after the loop
    clock("reconstruct")
    # Not in the paper: Eqn. 6 for all units at once, from what was found one by one.
    together = agreed(reconstruct_together(network, walk, config)) if rule.repairs_all else None
    clock("together")

    # Stage 3: recompose W' = Q' R' in a copy of the user's model, its norms restored.
    best = choose(network, walk, kept, rule.repairs_all, together)  # on held-out images never worse than plain cutting
    statistics = output_statistics(network.trace, best.weights, best.changed, network.calibration)
    slim = recompose(network, best.weights, best.changed, kept, statistics)
    verify(network, best.weights, slim)
    clock("recompose")
    tell("recomposed", seconds=dict(clock.seconds))

    result = PruneResult(
        model=slim,
        widths={name: len(found) for name, found in kept.items()},
        full_widths=full,
        ranks=ranks,
        spectra=spectra,
        curves=plan.curves,
        curves_of=plan.curves_of,
        skipped=network.skipped,
        history=tuple(history),
        macs=(count_macs(model, network.example), count_macs(slim, network.example)),
        parameters=(count_parameters(model), count_parameters(slim)),
        images=network.calibration.examples,
        target=target.as_dict(),
        config=config,
        seconds=clock.seconds,
        versions=versions(),
        example=network.example.map(lambda t: t[:1].clone()),
        method=rule.name,
        attributes=stated_sizes(network.units, kept),
        held_out=best.held_out,
        checksums=journal.checksums,
    )
    if out is not None and save:
        checkpoint.save(result, out)
    tell("done", speedup=result.speedup)
    return result


def analyze(model: nn.Module, batches: Iterable[Any], energy: float = 0.65) -> Analysis:
    """Ranks and ranges of every conv and linear layer at ``energy`` (Tab. 1 and the supplement's table)."""
    if not 0 < energy <= 1:
        raise LdrfError(f"The 'energy' must be above 0 and at most 1. Got {energy!r} instead.")
    config = PruneConfig()
    network = read_network(model, batches, (), config, True)
    inputs = layer_inputs(network.trace, network.dense, network.calibration, config.seed, progress)
    return rank_layers(network, inputs, energy)
