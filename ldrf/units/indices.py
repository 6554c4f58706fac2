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
from ldrf.tracing.interpreter import Constant, Weights
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
    yield from row_slices(unit.producer, unit.neuron_of_output)
    yield from unit.slices
    for consumer in unit.consumers:
        yield Slice(consumer.layer.weight, 1 - consumer.layer.row_dim, consumer.channels)


def covering(unit: Unit, kept: Tensor) -> Tensor:
    """As many neurons as ``kept``, and the same where possible, so that every tensor keeps at least one.

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
    owned = {frozenset(piece.ids.tolist()) for piece in pieces(unit) if len(piece.ids) and (piece.ids >= 0).all()}
    return sorted(owned, key=lambda part: (len(part), min(part)))


def surviving(units: Iterable[Unit], kept: Kept) -> Left:
    """What is left of every tensor that one of the units in ``kept`` shrinks."""
    left: Left = {}
    for unit in units:
        if unit.name in kept and len(kept[unit.name]) < unit.width:
            for key, mask in masks(pieces(unit), kept[unit.name]).items():
                left[key] = left[key] & mask if key in left else mask
    return left


def masks(slices: Iterable[Slice], kept: Tensor) -> Left:
    """What is left of each of these tensors of one unit."""
    left: Left = {}
    for piece in slices:
        key, mask = (piece.tensor, piece.dim), stays(piece.ids, kept)
        left[key] = left[key] & mask if key in left else mask
    return left


def as_it_stands(unit: Unit, units: Iterable[Unit], kept: Kept) -> Unit:
    """The unit in a network in which the other units of ``kept`` were cut before it."""
    left = surviving((u for u in units if u.name != unit.name), kept)
    if not left:
        return unit
    return replace(
        unit,
        neuron_of_output=_left_ids(left, unit.producer.weight, unit.producer.row_dim, unit.neuron_of_output),
        slices=tuple(replace(s, ids=_left_ids(left, s.tensor, s.dim, s.ids)) for s in unit.slices),
        consumers=tuple(_consumer_as_it_stands(c, left) for c in unit.consumers),
    )


def _left_ids(left: Left, tensor: str, dim: int, ids: np.ndarray) -> np.ndarray:
    return ids[left[tensor, dim]] if (tensor, dim) in left else ids


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
    return cut_to(trace, weights, surviving(units, kept))


def cut_to(trace: Trace, weights: Weights, left: Left) -> Weights:
    """Weights with only those indices of the named tensors that are left; other layers are the very same."""
    named = {name for name, _ in left}
    holders = [(holder, name) for holder, name in trace.names.items() if name in named and holder in weights.tensors]
    tensors = {holder: cut_tensor(weights.tensors[holder], name, left) for holder, name in holders}
    cut = [layer for layer in trace.layers if layer.weight in named]
    layers = {layer.node: _cut_layer(layer, weights.layers[layer.node], left) for layer in cut}
    rows = {layer.weight: left.get((layer.weight, layer.row_dim)) for layer in cut}
    constants = {
        node: _cut_constant(constant, rows.get(constant.weight)) for node, constant in weights.constants.items()
    }
    return replace(weights.with_tensors(tensors).with_layers(layers), constants=constants)


def _cut_constant(constant: Constant, rows: np.ndarray | None) -> Constant:
    return constant if rows is None else replace(constant, values=_select(constant.values, 0, rows))


def cut_tensor(tensor: Tensor, name: str, left: Left) -> Tensor:
    """A tensor of the model with only those of its indices that are left, in every dimension."""
    for dim in range(tensor.ndim):
        if (name, dim) in left:
            tensor = _select(tensor, dim, left[name, dim])
    return tensor


def _cut_layer(layer: Layer, parameters: tuple[Tensor, Tensor | None], left: Left) -> tuple[Tensor, Tensor | None]:
    weight, bias = parameters  # rows first, whatever the layer
    rows, columns = left.get((layer.weight, layer.row_dim)), left.get((layer.weight, 1 - layer.row_dim))
    weight = _select(weight, 1, columns) if columns is not None else weight
    if rows is None:
        return weight, bias
    return _select(weight, 0, rows), None if bias is None else _select(bias, 0, rows)


def _select(tensor: Tensor, dim: int, mask: np.ndarray) -> Tensor:
    return tensor.index_select(dim, torch.as_tensor(mask.nonzero()[0], device=tensor.device))
