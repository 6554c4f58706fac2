"""Seconds of a network as a function of its units' widths, from measured tables of its layers."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product

from ldrf.deployment.deployed import Deployed
from ldrf.deployment.geometry import geometry_of
from ldrf.deployment.measuring_pieces import measure_tables
from ldrf.deployment.tables import Table, Wanted
from ldrf.planning.cost_model import Size, touched_layers
from ldrf.runtime.processes import from_first
from ldrf.tracing.trace import Layer, Trace
from ldrf.units.unit import Unit
from ldrf.units.width_choices import Choices

SIDES = 4096  # combinations of widths looked at, at most, to list the sizes of a layer that several units meet in


@dataclass(frozen=True)
class LayerCost:
    """One layer: its table, and what its numbers of inputs and outputs are made of; ``scale`` fits it to the whole."""

    name: str
    table: Table
    inputs: Size
    outputs: Size
    scale: float = 1.0
    known: dict[tuple[int, int], float] = field(default_factory=dict, compare=False, repr=False)

    @property
    def units(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.inputs.per, *self.outputs.per)))

    def at(self, widths: Mapping[str, int]) -> float:
        """Seconds with these widths; none where no inputs or outputs are left, as the layer's branch is left out."""
        size = self.inputs.at(widths), self.outputs.at(widths)
        if size not in self.known:
            self.known[size] = self.scale * self.table.at(*size) if all(size) else 0.0
        return self.known[size]


@dataclass(frozen=True)
class LatencyModel:
    """Seconds of the whole network: the layers that are in tables, and a rest that no width changes."""

    layers: tuple[LayerCost, ...]
    fixed: float
    full: dict[str, int]

    def at(self, widths: Mapping[str, int]) -> float:
        now = {**self.full, **widths}
        return self.fixed + sum(layer.at(now) for layer in self.layers)

    def saving(self, unit: str, widths: Mapping[str, int], lower: int) -> float:
        return -self.change(widths, {unit: lower})

    def change(self, widths: Mapping[str, int], moved: Mapping[str, int]) -> float:
        now = {**widths, **moved}
        layers = {id(layer): layer for unit in moved for layer in self.layers_of.get(unit, ())}.values()
        return sum(layer.at(now) - layer.at(widths) for layer in layers)

    def without(self, units: Collection[str]) -> "LatencyModel":
        """The time of the network that lacks these units and every layer that reads or makes them."""
        layers = tuple(layer for layer in self.layers if not any(unit in units for unit in layer.units))
        return LatencyModel(layers, self.fixed, {name: width for name, width in self.full.items() if name not in units})

    @cached_property
    def layers_of(self) -> dict[str, list[LayerCost]]:
        """For each unit the layers whose size depends on it."""
        by_unit: dict[str, list[LayerCost]] = {}
        for layer in self.layers:
            for unit in layer.units:
                by_unit.setdefault(unit, []).append(layer)
        return by_unit

    @property
    def untouched(self) -> list[LayerCost]:
        """Layers that no unit changes."""
        return [layer for layer in self.layers if not layer.units]


def latency_model(trace: Trace, units: tuple[Unit, ...], choices: Choices, deployed: Deployed) -> LatencyModel:
    """The model of a network, with tables measured where they are not known from an earlier run.

    What is in no table is the rest of the whole: pools, attention, norms that stand alone.
    """
    full = {unit.name: unit.width for unit in units}
    sides = _sides(trace, units)
    wanted = [Wanted(g, _sizes(inputs, choices), _sizes(outputs, choices)) for _, g, inputs, outputs in sides]
    tables = from_first(lambda: _measured(wanted, deployed))
    layers = [
        LayerCost(layer.name, table, inputs, outputs)
        for (layer, _, inputs, outputs), table in zip(sides, tables, strict=True)
    ]
    together, whole = sum(layer.at(full) for layer in layers), deployed.dense_seconds
    scale = min(1.0, whole / together) if together else 1.0
    scaled = tuple(LayerCost(la.name, la.table, la.inputs, la.outputs, scale) for la in layers)
    return LatencyModel(scaled, whole - scale * together, full)


def _measured(wanted: Sequence[Wanted], deployed: Deployed) -> list[Table]:
    d = deployed.deployment
    return measure_tables(wanted, deployed.runtime, d.batch, d.threads, deployed.cache())


def _sides(trace: Trace, units: tuple[Unit, ...]) -> list:
    """Every layer of the network that can be timed, its geometry, and what its inputs and outputs are made of."""
    touched = {layer.node: (outputs, inputs) for layer, outputs, inputs in touched_layers(trace, units)}
    sides = []
    for layer in trace.layers:
        geometry = geometry_of(trace, layer)
        if geometry is not None:
            outputs, inputs = touched.get(layer.node, (Size({}, layer.outputs), Size({}, layer.inputs / layer.groups)))
            sides.append((layer, geometry, _whole_inputs(layer, inputs, outputs), outputs))
    return sides


def _whole_inputs(layer: Layer, inputs: Size, outputs: Size) -> Size:
    """The inputs of all groups together, which go whole: as many per output as before."""
    if layer.groups == 1:
        return inputs
    share = layer.inputs / layer.outputs
    return Size({unit: count * share for unit, count in outputs.per.items()}, outputs.rest * share)


def _sizes(size: Size, choices: Choices) -> tuple[int, ...]:
    """All numbers that one side of a layer can come to, ascending; of very many, those where all units move at once."""
    names = list(size.per)
    count = 1
    for name in names:
        count *= len(choices[name])
    if count <= SIDES:
        plans = [dict(zip(names, widths, strict=True)) for widths in product(*(choices[n] for n in names))]
    else:
        steps = max(len(choices[n]) for n in names)
        plans = [{n: choices[n][k * (len(choices[n]) - 1) // (steps - 1)] for n in names} for k in range(steps)]
    return tuple(sorted({size.at(plan) for plan in plans}))
