"""What a network costs: multiply-accumulates and parameters as a function of the units' widths, and time."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.benchmark import Timer
from torch.utils.flop_counter import FlopCounterMode

from ldrf.channel_flow import layer_tensors
from ldrf.inputs import Inputs
from ldrf.tracing import Layer, Trace, working_copy
from ldrf.units import Unit


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

    def saving(self, unit: str, widths: Mapping[str, int]) -> float:
        """Cost of one neuron of ``unit`` at the given widths."""
        others = [t for t in self.terms if unit in t.units]
        return sum(t.factor * math.prod(widths[u] for u in t.units if u != unit) for t in others)


def mac_model(trace: Trace, units: tuple[Unit, ...], total: float) -> CostModel:
    """MACs per example: every layer a unit touches as a product of widths, all else fixed."""
    terms = [Term(_macs_per_width(layer, spans), tuple(spans)) for layer, spans in _touched(trace, units)]
    return _model(terms, units, total)


def parameter_model(trace: Trace, units: tuple[Unit, ...], total: float) -> CostModel:
    """Parameters: weights, biases and norms of every layer a unit touches."""
    terms: list[Term] = []
    for layer, spans in _touched(trace, units):
        per = math.prod(layer.kernel) * layer.outputs * layer.inputs / layer.groups
        terms.append(Term(per / math.prod(spans.values()), tuple(spans)))
        owner = next((u for u in units if u.producer.node == layer.node), None)
        if owner is None and layer.is_depthwise and spans:
            owner = next(u for u in units if u.name in spans)
        if owner is not None:
            vectors = bool(layer.bias) + (bool(layer.norm.weight) + bool(layer.norm.bias) if layer.norm else 0)
            terms.append(Term(vectors, (owner.name,)))
    counted = {name for layer in trace.layers for name in layer_tensors(layer)}
    for unit in units:
        for name in {s.tensor for s in unit.slices} - counted:  # carriers such as PReLU or a norm on its own
            terms.append(Term(trace.parameters.get(name, 0) / unit.width, (unit.name,)))
    return _model(terms, units, total)


def _model(terms: list[Term], units: tuple[Unit, ...], total: float) -> CostModel:
    full = {u.name: u.width for u in units}
    variable = CostModel(tuple(terms), 0.0, full).at({})
    return CostModel(tuple(terms), total - variable, full)


def _touched(trace: Trace, units: tuple[Unit, ...]) -> list[tuple[Layer, dict[str, int]]]:
    """Layers whose size depends on a unit, with the full width of each such unit."""
    found = []
    for layer in trace.layers:
        spans = {u.name: u.width for u in units if _reads(u, layer) or u.producer.node == layer.node}
        if spans:
            found.append((layer, spans))
    return found


def _reads(unit: Unit, layer: Layer) -> bool:
    through = layer.is_depthwise and any(s.tensor == layer.weight for s in unit.slices)
    return through or any(c.layer.node == layer.node for c in unit.consumers)


def _macs_per_width(layer: Layer, spans: dict[str, int]) -> float:
    macs = layer.positions * math.prod(layer.kernel) * layer.outputs * layer.inputs / layer.groups
    return macs / math.prod(spans.values())


def count_macs(model: nn.Module, example: Inputs) -> int:
    """MACs of one forward pass per example, counted on a copy without data (conv, linear, matmul)."""
    copied = working_copy(model)
    try:
        return _counted(copied.to("meta"), example.map(lambda t: t[:1].to("meta")))
    except Exception:  # its code makes tensors of its own on the CPU, or looks at values
        return _counted(working_copy(model), example.map(lambda t: t[:1]))


def _counted(model: nn.Module, inputs: Inputs) -> int:
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        inputs.call(model)
    return counter.get_total_flops() // 2


def count_parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def latency_ratio(dense: nn.Module, slim: nn.Module, example: Inputs, seconds: float = 1.0) -> dict[str, float]:
    """Median milliseconds of one call of each network on the same inputs, measured in turns."""
    times: dict[str, list[float]] = {"dense": [], "slim": []}
    with torch.inference_mode():
        for _ in range(3):
            for name, model in (("dense", dense), ("slim", slim)):
                timer = Timer(
                    "call(model)", globals={"call": example.call, "model": model}, num_threads=torch.get_num_threads()
                )
                times[name].append(timer.blocked_autorange(min_run_time=seconds / 3).median * 1000)
    return {name: sorted(found)[len(found) // 2] for name, found in times.items()}
