"""What a network costs: multiply-accumulates and parameters as a function of the units' widths, and time."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from ldrf.channels.walk import layer_tensors
from ldrf.tracing.trace import Layer, Trace
from ldrf.units.unit import Unit


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

    @cached_property
    def _terms_of(self) -> dict[str, list[tuple[Term, int]]]:
        """For each unit its terms, and how often it stands in each: twice in a layer that reads and makes it."""
        found: dict[str, list[tuple[Term, int]]] = {}
        for term in self.terms:
            for unit in set(term.units):
                found.setdefault(unit, []).append((term, term.units.count(unit)))
        return found


@dataclass(frozen=True)
class _Size:
    """One side of a layer, its outputs or its inputs: so many per neuron of each unit, and a rest that stays."""

    per: dict[str, float]
    rest: float

    @property
    def parts(self) -> list[tuple[float, tuple[str, ...]]]:
        return [*((count, (unit,)) for unit, count in self.per.items()), (self.rest, ())]


def mac_model(trace: Trace, units: tuple[Unit, ...], total: float) -> CostModel:
    """MACs per example: every layer a unit touches as a product of widths, all else fixed."""
    terms: list[Term] = []
    for layer, outputs, inputs in _touched(trace, units):
        terms += _products(layer.calls * math.prod(layer.kernel), outputs, inputs)
    terms += [Term(unit.work / unit.width, (unit.name,)) for unit in units if unit.work]
    return _model(terms, units, total)


def parameter_model(trace: Trace, units: tuple[Unit, ...], total: float) -> CostModel:
    """Parameters: weights, biases and norms of every layer a unit touches."""
    terms: list[Term] = []
    for layer, outputs, inputs in {found[0].weight: found for found in _touched(trace, units)}.values():
        terms += _products(math.prod(layer.kernel), outputs, inputs)
        vectors = bool(layer.bias) + (bool(layer.norm.weight) + bool(layer.norm.bias) if layer.norm else 0)
        terms += [Term(vectors * count, (unit,)) for unit, count in outputs.per.items()]
    counted = {name for layer in trace.layers for name in layer_tensors(layer)}
    for unit in units:
        for piece in {piece.tensor: piece for piece in unit.slices}.values():
            if piece.tensor not in counted:  # a carrier such as PReLU or a norm on its own
                share = (piece.ids >= 0).sum() / len(piece.ids) / unit.width
                terms.append(Term(trace.parameters.get(piece.tensor, 0) * float(share), (unit.name,)))
    return _model(terms, units, total)


def _model(terms: list[Term], units: tuple[Unit, ...], total: float) -> CostModel:
    full = {u.name: u.width for u in units}
    variable = CostModel(tuple(terms), 0.0, full).at({})
    return CostModel(tuple(terms), total - variable, full)


def _products(factor: float, outputs: _Size, inputs: _Size) -> list[Term]:
    """factor * outputs * inputs as terms, without the one that no unit changes."""
    return [
        Term(factor * o * i, (*made, *read))
        for o, made in outputs.parts
        for i, read in inputs.parts
        if (made or read) and o * i
    ]


def _touched(trace: Trace, units: tuple[Unit, ...]) -> list[tuple[Layer, _Size, _Size]]:
    """Layers whose size depends on a unit, with what their outputs and inputs (of one group) are made of."""
    made: dict[str, dict[str, float]] = {}
    read: dict[str, dict[str, float]] = {}
    nodes = {layer.weight: layer for layer in trace.layers}
    for unit in units:
        own = [s for s in unit.slices if s.tensor in nodes]
        rows = [(s.tensor, s.ids) for s in own if s.dim == nodes[s.tensor].row_dim]
        tied = [(s.tensor, s.ids) for s in own if s.dim != nodes[s.tensor].row_dim]  # heads that read with a table
        for weight, ids in [(unit.producer.weight, unit.rows), *rows]:
            made.setdefault(weight, {})[unit.name] = float((ids >= 0).sum() / unit.width)
        for weight, ids in [*((c.layer.weight, c.channels) for c in unit.consumers), *tied]:
            read.setdefault(weight, {})[unit.name] = float((ids >= 0).sum() / unit.width)
    width = {unit.name: unit.width for unit in units}
    size = lambda per, full: _Size(per, full - sum(count * width[u] for u, count in per.items()))  # noqa: E731
    return [
        (
            layer,
            size(made.get(layer.weight, {}), layer.outputs),
            size(read.get(layer.weight, {}), layer.inputs / layer.groups),
        )
        for layer in trace.layers
        if layer.weight in made or layer.weight in read
    ]
