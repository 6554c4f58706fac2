"""One trial: a model with some units cut beside its traced graph with the same units cut. Do they still agree?"""

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ldrf.inputs import Inputs
from ldrf.runtime.device import OutOfMemory
from ldrf.runtime.randomness import same_random_numbers
from ldrf.tracing.choices import Choices
from ldrf.tracing.counting import plain_attention
from ldrf.tracing.interpreter import Weights
from ldrf.tracing.lean_run import input_values, run_lean
from ldrf.tracing.operations import source_of
from ldrf.tracing.trace import Trace
from ldrf.units.indices import Kept, covering, cut_weights
from ldrf.units.layer_inputs import fed_wrongly, noted_inputs
from ldrf.units.module_surgery import cut_plainly
from ldrf.units.unit import Unit

ROUNDING = 100  # a cut network may differ from its graph so many times more than the whole one does
LEAST, MOST = 1e-5, 1e-3  # and always by so much, never by more, relative to the largest output


@dataclass(frozen=True)
class Comparison:
    """A model beside its graph: how far apart they are."""

    gap: float  # of their outputs, relative to the largest
    same_attention: bool  # whether attention works on maps of the same sizes
    fed_wrongly: frozenset[str]  # layers that read other values than in the graph


FAILED = Comparison(math.inf, False, frozenset())


@dataclass(frozen=True)
class CutTrial:
    """One model with its graph on a few examples, and how far apart the two are before anything is cut."""

    model: nn.Module
    dense: Weights
    few: Inputs
    whole: Comparison

    @property
    def rounding(self) -> float:
        return self.whole.gap

    def passes(self, trace: Trace, tried: tuple[Unit, ...], kept: Kept) -> bool:
        """Whether model and graph are no further apart with these units cut; ``trace`` is that of the units' walk."""
        cut, tolerance = compared(trace, self.dense, self.model, self.few, tried, kept), _tolerance(self.rounding)
        same = cut.same_attention or not self.whole.same_attention
        return cut.gap <= tolerance and same and cut.fed_wrongly <= self.whole.fed_wrongly


def _tolerance(rounding: float) -> float:
    return min(MOST, max(LEAST, ROUNDING * rounding))


def cut_trial(trace: Trace, dense: Weights, model: nn.Module, few: Inputs) -> CutTrial:
    """Trials of this model on a few examples, after a first comparison with nothing cut."""
    return CutTrial(model, dense, few, compared(trace, dense, model, few, (), {}))


def compared(
    trace: Trace, dense: Weights, model: nn.Module, few: Inputs, tried: tuple[Unit, ...], kept: Kept
) -> Comparison:
    """The model with these units cut to the kept neurons beside its graph cut likewise."""
    copied, choices = cut_copy(model, tried, kept), Choices()
    names = {layer.name for layer in trace.layers}
    with _attention_shapes() as own, noted_inputs(copied, names) as noted, choices.noted():
        outputs = outputs_of(copied, few)
    if outputs is None:
        return FAILED
    with _attention_shapes() as wanted, choices.followed():
        values = graph_values(trace, cut_weights(trace, tried, dense, kept), input_values(trace, few, dense.device))
    if values is None:
        return FAILED
    expected = [values[name] for name in trace.outputs if isinstance(values.get(name), Tensor)]
    return Comparison(gap(outputs, expected), sorted(own) == sorted(wanted), fed_wrongly(trace, noted, values))


def without_last(units: tuple[Unit, ...]) -> Kept:
    """All neurons but the last of each unit."""
    return {unit.name: torch.arange(unit.width - 1) for unit in units}


def unevenly(units: tuple[Unit, ...]) -> Kept:
    """Each unit without another number of neurons than those beside it, and never more than half of them."""
    lost = {unit.name: 1 + place % max(1, unit.width // 2) for place, unit in enumerate(units)}
    return {unit.name: covering(unit, torch.arange(unit.width - lost[unit.name])) for unit in units}


@contextmanager
def _attention_shapes() -> Iterator[list[list[int]]]:
    """Sizes of what attention works on within. A wrong number of heads shows there, even if outputs hide it."""
    shapes: list[list[int]] = []

    class Noted(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if "softmax" in func.__name__ or "scaled_dot_product" in func.__name__:
                shapes.append([size for t in args if isinstance(t, Tensor) for size in t.shape])
            return func(*args, **(kwargs or {}))

    with Noted(), plain_attention():
        yield shapes


def cut_copy(model: nn.Module, units: tuple[Unit, ...], kept: Kept) -> nn.Module | None:
    """A copy of the model with the units cut, or None where that fails; the model itself where there are none."""
    if not units:
        return model
    try:
        shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
        copied = copy.deepcopy(model, shared)  # a cut replaces tensors, it writes in none
        cut_plainly(copied, units, kept)
    except Exception:
        return None
    return copied


@torch.no_grad()
def outputs_of(model: nn.Module | None, chunk: Inputs) -> list[Tensor] | None:
    """Outputs of a model, or None where it does not run."""
    if model is None:
        return None
    try:
        with same_random_numbers():
            return [t for t in tree_leaves(chunk.call(model)) if isinstance(t, Tensor)]
    except OutOfMemory:
        raise
    except Exception:
        return None


@torch.no_grad()
def graph_values(trace: Trace, weights: Weights, inputs: dict[str, object]) -> dict[str, Any] | None:
    """What layers read in the traced graph with these weights, and its outputs, or None where it does not run."""
    read = {source_of(trace.node(layer.node)) for layer in trace.layers}
    try:
        with same_random_numbers():
            return run_lean(trace, weights, 0, len(trace.nodes), dict(inputs), read)
    except OutOfMemory:
        raise
    except Exception:
        return None


def graph_outputs(trace: Trace, weights: Weights, inputs: dict[str, object]) -> list[Tensor] | None:
    """Outputs of the traced graph with these weights, or None where it does not run."""
    values = graph_values(trace, weights, inputs)
    return None if values is None else [v for name in trace.outputs if isinstance(v := values.get(name), Tensor)]


def gap(outputs: list[Tensor] | None, wanted: list[Tensor]) -> float:
    """The largest difference of two lists of outputs relative to the largest of each, infinite for other shapes."""
    if outputs is None or len(outputs) < len(wanted):
        return math.inf
    return max((_gap(a, b) for a, b in zip(outputs, wanted, strict=False)), default=0.0)


def _gap(a: Tensor, b: Tensor) -> float:
    if a.shape != b.shape:
        return math.inf
    if not a.is_floating_point() or not b.numel():
        return 0.0
    b = b.to(a.device)
    finite = torch.isfinite(b)
    size = float(b.abs().nan_to_num(posinf=0.0).max())
    apart = (a - b).abs()[finite].nan_to_num(nan=math.inf).max() if finite.any() else torch.zeros(())
    return max(0.0, float(apart) - 1e-6) / max(size, 1e-30)
