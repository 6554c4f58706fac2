"""What a network costs as a function of its units' widths: a sum of products of widths."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from ldrf.tracing.trace import Layer, Trace
from ldrf.units.unit import Unit


class Cost(Protocol):
    """What an allocation needs to know of a cost: MACs, parameters or time, as a function of widths."""

    @property
    def full(self) -> dict[str, int]: ...

    def at(self, widths: Mapping[str, int]) -> float: ...

    def saving(self, unit: str, widths: Mapping[str, int], lower: int) -> float: ...

    def change(self, widths: Mapping[str, int], moved: Mapping[str, int]) -> float: ...

    def without(self, units: Collection[str]) -> "Cost": ...


@dataclass(frozen=True)
class Term:
    """MACs (or parameters) of one tensor: ``factor`` times the widths of the units it spans."""

    factor: float
    units: tuple[str, ...]


@dataclass(frozen=True)
class CostModel:
    """Cost of the whole network as a sum of terms, so that any width plan is priced without running it."""

    terms: tuple[Term, ...]
    fixed: float
    full: dict[str, int]

    def at(self, widths: Mapping[str, int]) -> float:
        """Cost with these widths; a unit that is not named keeps its full width."""
        now = {**self.full, **widths}
        return self.fixed + sum(t.factor * math.prod(now[u] for u in t.units) for t in self.terms)

    def saving(self, unit: str, widths: Mapping[str, int], lower: int) -> float:
        """Cost saved when ``unit`` goes from its width among ``widths`` to ``lower``; negative where that is more."""
        width, saved = widths[unit], 0.0
        for term, power in self._terms_of.get(unit, ()):
            rest = term.factor * math.prod(widths[u] for u in term.units if u != unit)
            saved += rest * (width**power - lower**power)
        return saved

    def change(self, widths: Mapping[str, int], moved: Mapping[str, int]) -> float:
        """Cost added when the units in ``moved`` get these widths."""
        now = {**widths, **moved}
        terms = {id(term): term for unit in moved for term, _ in self._terms_of.get(unit, ())}.values()
        return sum(
            t.factor * (math.prod(now[u] for u in t.units) - math.prod(widths[u] for u in t.units)) for t in terms
        )

    def without(self, units: Collection[str]) -> "CostModel":
        """The cost of the network that lacks these units and everything that reads or makes them."""
        terms = tuple(term for term in self.terms if not any(unit in units for unit in term.units))
        return CostModel(terms, self.fixed, {name: width for name, width in self.full.items() if name not in units})

    @cached_property
    def _terms_of(self) -> dict[str, list[tuple[Term, int]]]:
        """For each unit its terms, and how often it stands in each: twice in a layer that reads and makes it."""
        terms: dict[str, list[tuple[Term, int]]] = {}
        for term in self.terms:
            for unit in set(term.units):
                terms.setdefault(unit, []).append((term, term.units.count(unit)))
        return terms


@dataclass(frozen=True)
class Size:
    """One side of a layer, its outputs or its inputs: so many per neuron of each unit, and a rest that stays."""

    per: dict[str, float]
    rest: float

    def at(self, widths: Mapping[str, int]) -> int:
        """How many there are with these widths."""
        return round(self.rest + sum(count * widths[unit] for unit, count in self.per.items()))

    @property
    def parts(self) -> list[tuple[float, tuple[str, ...]]]:
        return [*((count, (unit,)) for unit, count in self.per.items()), (self.rest, ())]


def cost_model(terms: list[Term], units: tuple[Unit, ...], total: float) -> CostModel:
    """The terms that depend on the units, and as a fixed rest what they lack to the dense network's ``total``."""
    full = {u.name: u.width for u in units}
    variable = CostModel(tuple(terms), 0.0, full).at({})
    return CostModel(tuple(terms), total - variable, full)


def products(factor: float, outputs: Size, inputs: Size) -> list[Term]:
    """factor * outputs * inputs as terms, without the one that no unit changes."""
    return [
        Term(factor * o * i, (*made, *read))
        for o, made in outputs.parts
        for i, read in inputs.parts
        if (made or read) and o * i
    ]


def touched_layers(trace: Trace, units: tuple[Unit, ...]) -> list[tuple[Layer, Size, Size]]:
    """Layers whose size depends on a unit, with what their outputs and inputs (of one group) are made of."""
    made: dict[str, dict[str, float]] = {}
    read: dict[str, dict[str, float]] = {}
    nodes = {layer.weight: layer for layer in trace.layers}
    for unit in units:
        own = [s for s in unit.slices if s.tensor in nodes]
        rows = [(s.tensor, s.ids) for s in own if s.dim == nodes[s.tensor].row_dim]
        tied = [(s.tensor, s.ids) for s in own if s.dim != nodes[s.tensor].row_dim]  # heads that read with a table
        for weight, ids in [(unit.producer.weight, unit.neuron_of_output), *rows]:
            made.setdefault(weight, {})[unit.name] = float((ids >= 0).sum() / unit.width)
        for weight, ids in [*((c.layer.weight, c.channels) for c in unit.consumers), *tied]:
            read.setdefault(weight, {})[unit.name] = float((ids >= 0).sum() / unit.width)
    full = {unit.name: unit.width for unit in units}
    return [
        (
            layer,
            _size(made.get(layer.weight, {}), layer.outputs, full),
            _size(read.get(layer.weight, {}), layer.inputs / layer.groups, full),
        )
        for layer in trace.layers
        if layer.weight in made or layer.weight in read
    ]


def _size(per: dict[str, float], whole: float, full: Mapping[str, int]) -> Size:
    """One side of a layer of ``whole`` inputs or outputs, of which each neuron of a unit has ``per``."""
    return Size(per, whole - sum(count * full[unit] for unit, count in per.items()))
