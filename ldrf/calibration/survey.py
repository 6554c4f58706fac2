"""Calibration images run through the dense network once: the inputs of every unit's consumers (Alg. 1, stage 1)."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from ldrf.algebra.large_rows import row_factors
from ldrf.algebra.moments import Moments, RowSums, input_moments
from ldrf.calibration.calibration_set import Calibration, telling_images
from ldrf.errors import LdrfWarning
from ldrf.runtime.device import exact, exact_device
from ldrf.runtime.processes import sum_over
from ldrf.tracing.interpreter import Weights, run
from ldrf.tracing.lean_run import Values, check_finite, input_values
from ldrf.tracing.operations import source_of
from ldrf.tracing.patches import COLUMNS, count_columns, count_rows, input_rows, sample_positions
from ldrf.tracing.trace import Layer, Trace
from ldrf.units.unit import Unit


@dataclass
class Survey:
    """What one dense pass shows of a unit: a Gram matrix per consumer, share of zeros and mean size per neuron."""

    moments: list[Moments]
    zeros: Tensor  # [n], APoZ
    activity: Tensor  # [n], mean absolute value


@torch.no_grad()
def survey(
    trace: Trace, weights: Weights, units: tuple[Unit, ...], calibration: Calibration, seed: int, progress: Any
) -> dict[str, Survey]:
    """Run the dense network over the fitting chunks and sum up every unit's consumer inputs."""
    shared: dict[str, RowSums] = {}
    sums = {u.name: torch.zeros(3, u.width, dtype=torch.float64) for u in units}
    fitting = set(calibration.fitting)
    for index in progress(calibration.own(), "survey"):
        for node, values in _passed(trace, weights, calibration, index):
            readers = list(_readers(units, node.name)) if index in fitting else []
            if readers:
                layer, x = readers[0][0].consumers[readers[0][1]].layer, values[source_of(node)]
                rows = input_rows(layer, x, sampled(layer, x, calibration, index, count_columns(layer), seed))
                # Units whose maps are joined have a consumer in common, and with it one Gram matrix.
                if node.name not in shared:
                    shared[node.name] = RowSums(rows.shape[1], device=weights.home)
                shared[node.name].add(rows, factors=row_factors(rows))
                for unit, c in readers:
                    _note_neurons(sums[unit.name], unit, c, rows)
    surveys = _over_processes(units, input_moments(shared), sums)
    _warn_of_few_rows(units, surveys, calibration)
    return surveys


def _passed(trace: Trace, weights: Weights, calibration: Calibration, index: int) -> Iterator[tuple[fx.Node, Values]]:
    """Every call of the network on one chunk, with the values that are still needed."""
    values, last = input_values(trace, calibration.chunks[index], weights.device), trace.last_uses
    for position, node in enumerate(trace.nodes):
        with telling_images(calibration, index):
            run(trace, weights, (node,), values)
        check_finite(trace, node, values)
        yield node, values
        for name in last.get(position, ()):
            values.pop(name, None)


def _over_processes(units: tuple[Unit, ...], moments: dict[str, Moments], sums: dict[str, Tensor]) -> dict[str, Survey]:
    """Surveys over all processes, from moments by the consumer's node and sums [zeros, sizes, number] by unit."""
    surveys = {}
    for unit in units:
        zeros, sizes, number = sum_over(sums[unit.name])
        number = number.clamp_min(1)
        surveys[unit.name] = Survey([moments[c.layer.node] for c in unit.consumers], zeros / number, sizes / number)
    return surveys


def _warn_of_few_rows(units: tuple[Unit, ...], surveys: dict[str, Survey], calibration: Calibration) -> None:
    """Say once where all images together cannot determine a layer: its least squares is damped and goes on."""
    examples = calibration.examples + calibration.others
    counted = [
        (c.layer.name, m.rows * examples // max(calibration.examples, 1), len(m.gram) - 1)
        for u in units
        for c, m in zip(u.consumers, surveys[u.name].moments, strict=True)
    ]
    short = [(name, rows, columns) for name, rows, columns in counted if rows < columns]
    if short:
        name, rows, columns = max(short, key=lambda s: s[2] / s[1])
        others = f" (and {len(short) - 1} more)" if len(short) > 1 else ""
        warnings.warn(
            f"{examples} calibration images give {rows} rows for the {columns} weights per output of layer "
            f"'{name}'{others}: least squares is damped there; more images would serve it better.",
            LdrfWarning,
            stacklevel=3,
        )


def layer_inputs(
    trace: Trace, weights: Weights, calibration: Calibration, seed: int, progress: Any
) -> dict[str, Moments]:
    """Gram matrix of every layer's input rows over the fitting chunks, by layer node, where it fits in memory."""
    layers = {la.node: la for la in trace.layers if la.groups == 1 and count_columns(la) <= COLUMNS}
    sums: dict[str, RowSums] = {}
    with torch.no_grad():
        for index in progress(calibration.own(calibration.fitting), "layers"):
            for node, values in _passed(trace, weights, calibration, index):
                layer = layers.get(node.name)
                if layer is not None:
                    x = values[source_of(node)]
                    rows = input_rows(layer, x, sampled(layer, x, calibration, index, 0, seed))
                    if node.name not in sums:
                        sums[node.name] = RowSums(rows.shape[1], device=weights.home)
                    sums[node.name].add(rows)
    return input_moments(sums)


def _readers(units: tuple[Unit, ...], node: str) -> Iterator[tuple[Unit, int]]:
    """Units that a layer reads, each with the layer's number among its consumers."""
    for unit in units:
        for i, consumer in enumerate(unit.consumers):
            if consumer.layer.node == node:
                yield unit, i


def sampled(layer: Layer, x: Tensor, calibration: Calibration, chunk: int, columns: int, seed: int) -> Tensor | None:
    """Which rows of a layer's input ``x`` in a chunk to use: each image gives its share of those wanted."""
    limit = max(rows_wanted(columns) // calibration.examples, 1)
    return sample_positions(count_rows(layer, x), calibration.images(chunk), limit, seed)


def _note_neurons(sums: Tensor, unit: Unit, index: int, rows: Tensor) -> None:
    """Add a consumer's input rows to the sums of those neurons that it is the first to read.

    Sums [zeros, sizes, number of values]: counts are exact, so equal neurons stay equal whatever is added first.
    """
    channels = torch.as_tensor(unit.consumers[index].channels)
    before = [torch.as_tensor(c.channels) for c in unit.consumers[:index]]
    own = ((channels >= 0) & ~torch.isin(channels, torch.cat(before or [channels[:0]]))).nonzero().flatten()
    per_neuron, owner = rows.view(len(rows), len(channels), -1), channels[own]
    per_neuron = per_neuron if len(own) == len(channels) else per_neuron[:, own]
    number = torch.full((len(owner),), float(len(rows) * per_neuron.shape[2]))
    # float32 counts rows as exactly as whole numbers, faster
    zeros = exact((per_neuron <= 0).float().sum(0)).sum(1)
    sizes = per_neuron.abs().to(exact_device(rows.device)).sum((0, 2), dtype=torch.float64)
    sums.index_add_(1, owner, torch.stack([part.cpu().double() for part in (zeros, sizes, number)]))


def rows_wanted(columns: int) -> int:
    """How many rows a problem with this many columns is solved on: well above the columns, bounded below."""
    return max(16 * columns, 30_000)
