"""One trial: a model with some units cut beside its traced graph with the same units cut. Do they still agree?"""

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ldrf.inputs import Inputs
from ldrf.runtime.randomness import same_chance
from ldrf.tracing.counting import plain_attention
from ldrf.tracing.interpreter import Weights, run
from ldrf.tracing.lean_run import input_values
from ldrf.tracing.trace import Trace
from ldrf.units.indices import Kept, cut_weights
from ldrf.units.layer_inputs import misled, noted_inputs
from ldrf.units.module_surgery import cut_plainly
from ldrf.units.unit import Unit

ROUNDING = 100  # a cut network may differ from its graph so many times more than the whole one does
LEAST, MOST = 1e-5, 1e-3  # and always by so much, never by more, relative to the largest output


@dataclass(frozen=True)
class Trial:
    """One model with its graph: what of it can be told apart from its graph before anything is cut, and how far."""

    attempt: Callable[[tuple[Unit, ...]], "Seen"]
    whole: "Seen"

    @property
    def rounding(self) -> float:
        return self.whole.far

    def passes(self, tried: tuple[Unit, ...]) -> bool:
        """Whether model and graph are no further apart with these units cut."""
        seen, tolerance = self.attempt(tried), min(MOST, max(LEAST, ROUNDING * self.rounding))
        return seen.far <= tolerance and (seen.alike or not self.whole.alike) and seen.astray <= self.whole.astray


@dataclass(frozen=True)
class Seen:
    """How far a model's outputs are from the graph's, whether attention works on the same, who reads other values."""

    far: float
    alike: bool
    astray: frozenset[str]


APART = Seen(math.inf, False, frozenset())


def trial_of(trace: Trace, dense: Weights, model: nn.Module, few: Inputs) -> Trial:
    """Trials of this model on a few examples, the first of them with nothing cut."""
    layers, inputs = {layer.name for layer in trace.layers}, input_values(trace, few)

    def attempt(tried: tuple[Unit, ...]) -> Seen:
        kept = without_last(tried)
        copied = cut_copy(model, tried, kept)
        with _attention_shapes() as own, noted_inputs(copied, layers) as noted:
            found = outputs_of(copied, few)
        if found is None:
            return APART
        with _attention_shapes() as wanted:
            values = graph_values(trace, cut_weights(trace, tried, dense, kept), inputs)
        if values is None:
            return APART
        outputs = [values[name] for name in trace.outputs if isinstance(values.get(name), Tensor)]
        return Seen(gap(found, outputs), sorted(own) == sorted(wanted), misled(trace, noted, values))

    return Trial(attempt, attempt(()))


def without_last(units: tuple[Unit, ...]) -> Kept:
    """All neurons but the last of each unit."""
    return {unit.name: torch.arange(unit.width - 1) for unit in units}


@contextmanager
def _attention_shapes() -> Iterator[list[list[int]]]:
    """Sizes of what attention works on within: heads that are counted wrongly show there, if not in the outputs."""
    found: list[list[int]] = []

    class Noted(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if "softmax" in func.__name__ or "scaled_dot_product" in func.__name__:
                found.append([size for t in args if isinstance(t, Tensor) for size in t.shape])
            return func(*args, **(kwargs or {}))

    with Noted(), plain_attention():
        yield found


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
        with same_chance():
            return [t for t in tree_leaves(chunk.call(model)) if isinstance(t, Tensor)]
    except Exception:
        return None


@torch.no_grad()
def graph_values(trace: Trace, weights: Weights, inputs: dict[str, object]) -> dict[str, Any] | None:
    """All values of the traced graph with these weights, or None where it does not run."""
    try:
        with same_chance():
            return run(trace, weights, trace.nodes, dict(inputs))
    except Exception:
        return None


def gap(found: list[Tensor] | None, wanted: list[Tensor]) -> float:
    """The largest difference of two lists of outputs relative to the largest of each, infinite for other shapes."""
    if found is None or len(found) < len(wanted):
        return math.inf
    return max((_gap(a, b) for a, b in zip(found, wanted, strict=False)), default=0.0)


def _gap(a: Tensor, b: Tensor) -> float:
    if a.shape != b.shape:
        return math.inf
    if not a.is_floating_point() or not b.numel():
        return 0.0
    compared = torch.isfinite(b)
    size = float(b.abs().nan_to_num(posinf=0.0).max())
    far = (a - b).abs()[compared].nan_to_num(nan=math.inf).max() if compared.any() else torch.zeros(())
    return max(0.0, float(far) - 1e-6) / max(size, 1e-30)
