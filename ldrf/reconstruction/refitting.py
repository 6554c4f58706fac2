"""Weights of layers that read slim neurons, by least squares on the rows of their inputs."""

from dataclasses import replace

import torch
from torch import Tensor

from ldrf.algebra.moments import Moments, RowSums, least_squares_at
from ldrf.calibration.survey import sampled
from ldrf.config import PruneConfig
from ldrf.reconstruction.lockstep import Lockstep
from ldrf.reconstruction.problem import Affine, Problem, factors_of, neurons, source, target
from ldrf.reconstruction.solution import Solution
from ldrf.reconstruction.unit_solver import find_solver
from ldrf.runtime.device import exact, single
from ldrf.tracing.patches import COLUMNS, count_columns, input_rows, output_rows
from ldrf.tracing.trace import Layer
from ldrf.units.unit import Unit

DAMPINGS = (1, 30, 900)  # multiples of the configured damping that are tried where rows are few
FEW = 40  # rows per column below which they are


def refitted(problem: Problem, solution: Solution, config: PruneConfig) -> Solution:
    """The same neurons, with the consumers' weights Q' in closed form.

    Where rows are few, held-out rows choose the damping of each consumer.
    """
    made = solution.weight, solution.bias, config.seed, solution.partners
    fit = moments_on(problem, False, *made)
    few = [m.rows < FEW * len(reader) for m, reader in zip(fit, solution.readers, strict=True)]
    judge = moments_on(problem, True, *made) if any(few) else fit
    readers = []
    for i, consumer in enumerate(problem.unit.consumers):
        levels = [config.damping * level for level in (DAMPINGS if few[i] else DAMPINGS[:1])]
        fitted = least_squares_at(fit[i], solution.readers[i], levels, consumer.layer.has_bias)
        readers.append(min(fitted, key=judge[i].error) if few[i] else next(fitted))
    return replace(solution, readers=tuple(readers))


@torch.no_grad()
def moments_on(
    problem: Problem, held_out: bool, weight: Tensor, bias: Tensor, seed: int, partners: Affine | None = None
) -> list[Moments]:
    """Sums over sampled rows for each consumer, on the held-out chunks or on the others."""
    unit, calibration = problem.unit, problem.walk.calibration
    device, pairs = weight.device, zip(unit.consumers, problem.columns, strict=True)
    sums = [RowSums(len(columns), consumer.layer.outputs, device) for consumer, columns in pairs]
    sources = [source(c.layer, problem.trace) for c in unit.consumers]
    own = [chunk for chunk in calibration.own() if (chunk in calibration.held_out) is held_out]
    for chunk in problem.walk.store.in_turn(own, "unit"):
        values = neurons(problem, chunk, weight, bias, partners)
        for i, consumer in enumerate(unit.consumers):
            x, layer = values[sources[i]], consumer.layer
            picked = sampled(layer, x, calibration, chunk, len(problem.columns[i]), seed)
            factors = factors_of(problem, chunk, i)
            factors = factors if factors is None else output_rows(layer, factors, picked)
            sums[i].add(input_rows(layer, x, picked), output_rows(layer, target(problem, chunk, i), picked), factors)
    return [s.moments().over_processes() for s in sums]


@torch.no_grad()
def refit_outputs(walk: Lockstep, units: tuple[Unit, ...], protected: frozenset[str], config: PruneConfig) -> None:
    """Refit layers that give the model's outputs and are no consumer of a unit (Alg. 1, the line after the loop).

    Without labels the loss is the distance to the dense outputs. A layer changes only if held-out rows gain.
    """
    consumers = {c.layer.node for u in units for c in u.consumers}
    if not walk.diverged or not find_solver(config).refits_outputs:
        return
    for layer in walk.trace.layers:
        position, alone = walk.trace.index(layer.node), walk.trace.called.get(layer.weight, 1) == 1
        if layer.result not in walk.trace.outputs or layer.node in consumers or layer.name in protected:
            continue
        if position >= walk.at and layer.groups == 1 and alone and count_columns(layer) <= COLUMNS:
            walk.advance(position)
            _refit(walk, layer, config)


def _refit(walk: Lockstep, layer: Layer, config: PruneConfig) -> None:
    """Solve a layer's weight and bias for its dense result, and commit them if held-out rows gain."""
    weight, constant = walk.slim.affine(layer.node)
    start = exact(torch.cat([weight.flatten(1).T, constant[None]]))
    fit, judge = _refit_moments(walk, layer, len(start), config.seed)
    levels = [config.damping * level for level in DAMPINGS]
    best = min([start, *least_squares_at(fit, start, levels, layer.has_bias)], key=judge.error)
    if best is not start:
        solved = single(best[:-1].T, weight).reshape(weight.shape).contiguous(), single(best[-1], weight)
        walk.commit(walk.slim.with_layers({layer.node: solved}))


def _refit_moments(walk: Lockstep, layer: Layer, columns: int, seed: int) -> tuple[Moments, Moments]:
    """Sums over rows of the layer's slim inputs and its dense results: on fitting chunks, and on held-out ones."""
    fit, judge = (RowSums(columns - 1, layer.outputs, walk.slim.device) for _ in range(2))
    end = walk.trace.index(layer.result)
    for chunk in walk.store.in_turn(walk.calibration.own(), "dense", "slim"):
        slim, dense = walk.segment("slim", chunk, end), walk.segment("dense", chunk, end)
        sums = judge if chunk in walk.calibration.held_out else fit
        x = slim[source(layer, walk.trace)]
        picked = sampled(layer, x, walk.calibration, chunk, columns, seed)
        sums.add(input_rows(layer, x, picked), output_rows(layer, dense[layer.result], picked))
    return fit.moments().over_processes(), judge.moments().over_processes()
