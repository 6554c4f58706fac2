"""Which indices of every tensor are left when units are cut; several units may shrink one dimension between them.

A joined map is read by one layer for all the units that make its parts, and a norm behind it is cut with each of them,
so what a unit looks like in the slim network depends on the units that were cut before it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ldrf.channels.flow import FIXED, Slice
from ldrf.tracing.interpreter import Weights
from ldrf.tracing.trace import Layer, Trace
from ldrf.units.unit import Consumer, Unit, row_slices

Kept = Mapping[str, Tensor]  # unit -> neurons that stay
Left = dict[tuple[str, int], np.ndarray]  # (tensor, dimension) -> which of its indices stay


def stays(ids: np.ndarray, kept: Tensor) -> np.ndarray:
    """Which places stay: those of kept neurons, and those that no neuron of the unit belongs to."""
    return (ids == FIXED) | np.isin(ids, kept.numpy())


def places(ids: np.ndarray, kept: Tensor) -> Tensor:
    """Indices of the places that stay."""
    return torch.as_tensor(stays(ids, kept).nonzero()[0])


def pieces(unit: Unit) -> Iterator[Slice]:
    """Every tensor a unit shrinks: its producer's outputs, carriers and partners, its consumers' inputs."""
    yield from row_slices(unit.producer, unit.rows)
    yield from unit.slices
    for consumer in unit.consumers:
        yield Slice(consumer.layer.weight, 1 - consumer.layer.row_dim, consumer.channels)


def covering(unit: Unit, kept: Tensor) -> Tensor:
    """As many neurons as ``kept``, and where they can be the same, such that no tensor is left without any.

    A unit whose neurons come from several layers side by side could else lose all of one layer's.
    """
    parts = _parts(unit)
    chosen = dict.fromkeys(kept.tolist())
    for part in parts:
        if chosen.keys().isdisjoint(part):
            chosen[min(part)] = None
    for neuron in sorted(chosen, reverse=True):
        if len(chosen) <= len(kept):
            break
        rest = chosen.keys() - {neuron}
        if not any(rest.isdisjoint(part) for part in parts):
            del chosen[neuron]
    return torch.tensor(sorted(chosen))


def least_width(unit: Unit) -> int:
    """The smallest width at which no tensor of a unit is left empty."""
    return len(covering(unit, torch.arange(0)))


def _parts(unit: Unit) -> list[frozenset[int]]:
    """The neurons of each tensor that has some of them and nothing else, the smallest first."""
    found = {frozenset(piece.ids.tolist()) for piece in pieces(unit) if len(piece.ids) and (piece.ids >= 0).all()}
    return sorted(found, key=lambda part: (len(part), min(part)))


def surviving(units: Iterable[Unit], kept: Kept) -> Left:
    """What is left of every tensor that one of the units in ``kept`` shrinks."""
    left: Left = {}
    for unit in units:
        if unit.name not in kept or len(kept[unit.name]) == unit.width:
            continue
        for piece in pieces(unit):
            key = piece.tensor, piece.dim
            mask = stays(piece.ids, kept[unit.name])
            left[key] = left[key] & mask if key in left else mask
    return left


def as_it_stands(unit: Unit, units: Iterable[Unit], kept: Kept) -> Unit:
    """The unit in a network in which the other units of ``kept`` were cut before it."""
    left = surviving((u for u in units if u.name != unit.name), kept)
    if not left:
        return unit
    cut = lambda key, ids: ids[left[key]] if key in left else ids  # noqa: E731
    return replace(
        unit,
        rows=cut((unit.producer.weight, unit.producer.row_dim), unit.rows),
        slices=tuple(replace(s, ids=cut((s.tensor, s.dim), s.ids)) for s in unit.slices),
        consumers=tuple(_consumer_as_it_stands(c, left) for c in unit.consumers),
    )


def _consumer_as_it_stands(consumer: Consumer, left: Left) -> Consumer:
    layer = consumer.layer
    rows, columns = left.get((layer.weight, layer.row_dim)), left.get((layer.weight, 1 - layer.row_dim))
    channels = consumer.channels if columns is None else consumer.channels[columns]
    if rows is None:
        return replace(consumer, channels=channels)
    outputs = rows.nonzero()[0]
    return replace(consumer, layer=replace(layer, outputs=len(outputs)), channels=channels, outputs=outputs)


def stated_sizes(units: Iterable[Unit], kept: Kept) -> dict[str, int]:
    """The numbers that modules keep of the units' widths, by qualified name, as they are after the cut."""
    return {
        f"{a.module}.{a.name}".lstrip("."): a.full * len(kept[unit.name]) // unit.width
        for unit in units
        for a in unit.attributes
        if unit.name in kept
    }


def cut_weights(trace: Trace, units: Iterable[Unit], weights: Weights, kept: Kept) -> Weights:
    """The dense weights without the neurons that go, and nothing else changed."""
    left = surviving(units, kept)
    tensors = {}
    for holder, name in trace.names.items():
        tensor = weights.tensors.get(holder)
        for dim in range(0 if tensor is None else tensor.ndim):
            if tensor is not None and (name, dim) in left:
                tensors[holder] = tensor = _select(tensor, dim, left[name, dim])
    layers = {layer.node: _cut_layer(layer, weights.layers[layer.node], left) for layer in trace.layers}
    return weights.with_tensors(tensors).with_layers(layers)


def _cut_layer(layer: Layer, parameters: tuple[Tensor, Tensor | None], left: Left) -> tuple[Tensor, Tensor | None]:
    weight, bias = parameters  # rows first, whatever the layer
    rows, columns = left.get((layer.weight, layer.row_dim)), left.get((layer.weight, 1 - layer.row_dim))
    weight = _select(weight, 1, columns) if columns is not None else weight
    if rows is None:
        return weight, bias
    return _select(weight, 0, rows), None if bias is None else _select(bias, 0, rows)


def _select(tensor: Tensor, dim: int, mask: np.ndarray) -> Tensor:
    return tensor.index_select(dim, torch.as_tensor(mask.nonzero()[0]))
