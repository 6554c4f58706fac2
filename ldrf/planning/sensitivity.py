"""How much an error inside one unit changes the network's outputs, without labels.

Each unit by itself is cut to a trial width in the dense network and its consumers are repaired by least squares. The
change of the network's outputs, relative to the unit's own error, weighs its error curve. For units it is estimated
from gradients (``first_order.py``), at a cost that grows with the depth of the network. Where a unit has no gradient,
for whole branches, and where a few long examples such as texts are all there is, the rest of the network is run.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ldrf.algebra.moments import Moments, damped_factor
from ldrf.algebra.neuron_removal import Removal
from ldrf.calibration.network import Network
from ldrf.calibration.survey import Survey
from ldrf.channels.attention_scores import projected_queries, weight_sums
from ldrf.inputs import Inputs
from ldrf.planning.first_order import estimated_changes, float_outputs, spreads
from ldrf.runtime.device import exact, single
from ldrf.runtime.processes import sum_over
from ldrf.tracing.interpreter import Weights
from ldrf.tracing.lean_run import input_values, run_lean
from ldrf.units.branches import without
from ldrf.units.columns import reader_columns
from ldrf.units.indices import stays
from ldrf.units.unit import Consumer, Unit

FEW = 64  # held-out examples below which gradients tell changes apart less well than the trials themselves
ROWS = 1024  # rows of the outputs that one chunk must have for that: a text has as many as tokens


def repaired(
    consumer: Consumer, moments: Moments, dense: Weights, kept: Tensor, damping: float
) -> tuple[Tensor, Tensor]:
    """The consumer's full-size weight with zeros for cut neurons and the rest solved to take over."""
    weight, bias = dense.layer(consumer.layer.node)
    moments = moments if consumer.layer.has_bias else moments.about_zero()
    matrix, moments = exact(weight.flatten(1).T), moments.to(weight.device)
    columns = reader_columns(consumer, kept)
    d = len(matrix)
    mean = moments.gram[:d, d] / moments.rows
    centred = moments.gram[:d, :d] / moments.rows - torch.outer(mean, mean)
    system = centred[columns][:, columns]
    solved = torch.cholesky_solve(centred[columns] @ matrix, damped_factor(system, damping))
    full = torch.zeros_like(matrix)
    full[columns] = solved
    shift = mean @ (matrix - full)
    constant = (exact(bias) if bias is not None else 0) + shift
    return single(full.T.reshape(weight.shape), weight), single(constant, weight)


@dataclass(frozen=True)
class Trial:
    """Weights to try, and the graph position from which on they make a difference."""

    weights: Weights
    first: int


def output_errors(
    network: Network,
    surveys: dict[str, Survey],
    removals: dict[str, Removal],
    trial: dict[str, int],
    damping: float,
    examples: int,
    progress: Any,
) -> dict[str, float]:
    """Relative squared change of the outputs when each unit alone is cut to its trial width, to first order.

    Units whose changes have no gradient are measured, and so are all of them where one chunk has rows enough.
    """
    trials = unit_trials(network, surveys, removals, trial, damping)
    chunks = _held_out(network, examples)
    if _is_long(network, chunks):
        return measured_changes(network, trials, chunks[:1], progress, "trials")
    layers = {name: _changed_layers(network, t.weights) for name, t in trials.items()}
    errors = estimated_changes(network, layers, chunks, progress)
    rest = {name: t for name, t in trials.items() if name not in errors}
    return {**errors, **(measured_changes(network, rest, chunks, progress, "trials") if rest else {})}


def _is_long(network: Network, chunks: list[int]) -> bool:
    """Whether the held-out examples are few, and the outputs of the first chunk have many rows all the same."""
    trace, sizes = network.trace, network.calibration.sizes
    rows = max((layer.calls for layer in trace.layers if layer.result in trace.outputs), default=1)
    return sum(sizes[i] for i in chunks) < FEW and sizes[chunks[0]] * rows >= ROWS


def unit_trials(
    network: Network, surveys: dict[str, Survey], removals: dict[str, Removal], widths: dict[str, int], damping: float
) -> dict[str, Trial]:
    """The dense network with one unit cut, for each unit."""
    trace = network.trace
    return {
        u.name: Trial(
            _cut_alone(network, u, surveys, removals, widths, damping),
            u.start if u.scores else min(trace.index(c.layer.node) for c in u.consumers),
        )
        for u in network.units
    }


def _changed_layers(network: Network, weights: Weights) -> dict[str, tuple[Tensor, Tensor | None]]:
    """The layers of a trial that differ from the dense ones."""
    return {node: pair for node, pair in weights.layers.items() if pair is not network.dense.layers[node]}


def branch_errors(network: Network, examples: int, progress: Any) -> dict[str, float]:
    """Relative squared change of the outputs when each branch alone is replaced by its mean."""
    trials = {b.name: Trial(without(network.dense, (b,)), network.trace.index(b.end)) for b in network.branches}
    return measured_changes(network, trials, _held_out(network, examples), progress, "branches")


def _held_out(network: Network, examples: int) -> list[int]:
    """Held-out chunks with so many examples, or all of them."""
    calibration, chunks = network.calibration, list[int]()
    for index in sorted(calibration.held_out):
        chunks.append(index)
        if sum(calibration.sizes[i] for i in chunks) >= examples:
            break
    return chunks


@torch.no_grad()
def measured_changes(
    network: Network, trials: Mapping[str, Trial], chunks: list[int], progress: Any, bar: str
) -> dict[str, float]:
    """Relative squared change of the outputs in each trial, by running the network from the first change on."""
    calibration = network.calibration
    errors = torch.zeros(len(trials), dtype=torch.float64)
    for index in progress(chunks, bar):
        own = bool(calibration.own([index]))
        before = _dense_outputs(network, calibration.chunks[index]) if own else {}
        spread = spreads(before, calibration.sizes[index])
        changes = dict(_changes(network, trials, calibration.chunks[index], before)) if own else {}
        for i, name in enumerate(trials):
            for output, change in changes.get(name, {}).items():
                errors[i] += change / spread[output] / len(chunks)
    return dict(zip(trials, sum_over(errors).tolist(), strict=True))


def _cut_alone(
    network: Network,
    unit: Unit,
    surveys: dict[str, Survey],
    removals: dict[str, Removal],
    trial: dict[str, int],
    damping: float,
) -> Weights:
    """The dense weights with one unit cut to its trial width and its consumers repaired."""
    kept = removals[unit.name].kept(trial[unit.name])
    layers = {
        c.layer.node: repaired(c, m, network.dense, kept, damping)
        for c, m in zip(unit.consumers, surveys[unit.name].moments, strict=True)
        if (c.channels >= 0).any()
    }
    if unit.compared:
        sums = weight_sums(network.dense, unit.compared)
        layers |= projected_queries(network.dense, unit.compared, sums, len(kept))
    elif unit.scores:
        weight, bias = network.dense.affine(unit.producer.node)
        stay = torch.as_tensor(stays(unit.neuron_of_output, kept)).to(weight.device)
        layers[unit.producer.node] = torch.where(stay.view(-1, *[1] * (weight.ndim - 1)), weight, 0), bias * stay
    return network.dense.with_layers(layers).placed(network.home)


def _dense_outputs(network: Network, chunk: Inputs) -> dict[str, Tensor]:
    trace = network.trace
    given = input_values(trace, chunk, network.dense.device)
    return float_outputs(trace, run_lean(trace, network.dense, 0, len(trace.nodes), given))


def _changes(
    network: Network, cut: Mapping[str, Trial], chunk: Inputs, before: dict[str, Tensor]
) -> Iterator[tuple[str, dict[str, float]]]:
    """Squared change of every output for each trial, which runs only from its first change on."""
    trace, end = network.trace, len(network.trace.nodes)
    values, at = input_values(trace, chunk, network.dense.device), 0
    for name, trial in sorted(cut.items(), key=lambda item: item[1].first):
        run_lean(trace, network.dense, at, trial.first, values)
        at = trial.first
        now = float_outputs(trace, run_lean(trace, trial.weights, at, end, dict(values)))
        yield name, {output: float((now[output] - before[output]).square().sum()) for output in before}
