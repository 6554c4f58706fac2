"""A trial before anything is solved: does the model's own code run with fewer neurons, and compute the right thing?

A forward that spells out a width (``x.view(-1, 512)``, ``x / 8``) shows only when it runs. Each unit loses one neuron
in a copy of the model; units with which it fails, or differs from the same cut in the traced graph, are left out. So
are those that differ with other weights: what these weights hide, as behind a dead ReLU, the solved ones may show.
"""

import copy
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ldrf.chance import same_chance
from ldrf.channel_flow import Flow, follow_channels
from ldrf.cost import plain_attention
from ldrf.cutting import Kept, cut_weights
from ldrf.errors import LdrfError
from ldrf.forward import input_values
from ldrf.grouping import units_of
from ldrf.inputs import Inputs, repeated
from ldrf.interpreter import Weights, folded, run
from ldrf.layer_inputs import lively, misled, noted_inputs
from ldrf.scores import with_heads
from ldrf.surgery import cut_plainly
from ldrf.targets import apply_ignore
from ldrf.tracing import Trace
from ldrf.units import Attribute, Skipped, Unit
from ldrf.unused import TRAINED, called_in_training, calls, unused_layers

ROUNDING = 100  # a cut network may differ from its graph so many times more than the whole one does
LEAST, MOST = 1e-5, 1e-3  # and always by so much, never by more, relative to the largest output
SPELT_OUT = "the model's forward spells out its width"

# What a unit is tried with, and the answer: the units that can be cut, and the others with the reason.
Usable = tuple[tuple[Unit, ...], tuple[Skipped, ...]]
Works = Callable[[tuple[Unit, ...]], bool]


def usable_units(trace: Trace, dense: Weights, model: nn.Module, chunk: Inputs, protected: frozenset[str]) -> Usable:
    """Units of a traced network that its own code lets us cut.

    Where a view splits channels over several dimensions, as attention does, the graph does not say which of them the
    model's code counts from the width: the last is tried, and where that fails the one before it, and the first; at
    last, whether queries, keys and values of one layer can lose width together.
    """
    outer: dict[str, int] = {}
    flow = follow_channels(trace)
    units, skipped = _tried(flow, dense, model, chunk, protected)
    for place, parts, packed in ((-2, 2, False), (0, 3, False), (-1, 2, True)):
        blocked = _blocked(flow, units, parts)
        if blocked:
            trial = {**outer, **dict.fromkeys(blocked, place)}
            other = follow_channels(trace, trial, packed)
            more = _tried(other, dense, model, chunk, protected)
            if len(more[0]) > len(units):
                outer, flow, (units, skipped) = trial, other, more
            else:
                follow_channels(trace, outer, flow.packed)  # the graph remembers the last walk
    return _with_heads(trace, dense, chunk, units), skipped


@torch.no_grad()
def _with_heads(trace: Trace, dense: Weights, chunk: Inputs, units: tuple[Unit, ...]) -> tuple[Unit, ...]:
    """The same units, those of queries and keys with what makes up each head."""
    if not any(unit.scores for unit in units):
        return units
    values = run(trace, dense, trace.nodes, input_values(trace, chunk.map(lambda t: t[:2])))
    return tuple(replace(u, scores=tuple(with_heads(trace, values, s) for s in u.scores)) for u in units)


def _tried(flow: Flow, dense: Weights, model: nn.Module, chunk: Inputs, protected: frozenset[str]) -> Usable:
    found = units_of(flow)
    units, ignored = apply_ignore(protected, (*found.units, *found.coupled))
    units, stuck = cuttable(flow.trace, dense, model, chunk, units)
    return units, (*found.skipped, *ignored, *stuck)


def _blocked(flow: Flow, units: tuple[Unit, ...], parts: int) -> list[str]:
    """Views that split channels of layers that are in no usable unit over at least so many dimensions."""
    nodes = {layer.node for unit in units for layer in (unit.producer, *unit.partners)}
    free = np.concatenate([np.empty(0, int), *(ids for node, ids in flow.produced.items() if node in nodes)])
    found = flow.split.items()
    return [name for name, (ids, count) in found if count >= parts and not np.isin(ids[ids >= 0], free).all()]


def cuttable(trace: Trace, dense: Weights, model: nn.Module, chunk: Inputs, units: tuple[Unit, ...]) -> Usable:
    """The units that can be cut in the model itself, and the others with the reason."""
    few = chunk.map(lambda t: t[:2])
    _check_batches(trace, dense, model, few)
    trials = [_trial(trace, dense, model, few)]
    if trials[0].rounding > MOST:
        raise LdrfError(
            f"The traced {type(model).__name__} does not compute what the model computes: its forward depends on "
            "chance or on the values of its inputs, so it cannot be pruned."
        )
    if units:
        awake, bright = lively(model), few.map(lambda t: t.abs() if t.is_floating_point() else t)
        other = _trial(trace, folded(trace, awake), awake, bright)
        trials += [other] if other.rounding * ROUNDING < MOST else []

    unused = unused_layers(trace, model, few)
    trained = _shapes_in_training(model, few) if any(layer.reason == TRAINED for layer in unused) else None

    def works(tried: tuple[Unit, ...]) -> bool:
        if trained and _shapes_in_training(cut_copy(model, tried, _without_last(tried)), few) != trained:
            return False
        return all(trial.passes(tried) for trial in trials)

    good = largest(units, works)
    names = {u.name for u in good}
    counted = _alone(tuple(c for u in units if u.name not in names and (c := _counted(model, u)).attributes))
    good = (*good, *largest(counted, lambda tried: works((*good, *tried))))
    names = {u.name for u in good}
    bad = [(u, _reason(model, few, u, unused)) for u in units if u.name not in names]
    skipped = [Skipped(name, reason) for u, reason in bad for name in u.makers]
    return tuple(sorted(good, key=lambda u: u.start)), (*skipped, *unused)


def _check_batches(trace: Trace, dense: Weights, model: nn.Module, few: Inputs) -> None:
    """Raise where the model takes another number of examples, and its graph does not."""
    more = repeated(few, 3)
    if graph_values(trace, dense, input_values(trace, more)) is None and outputs_of(model, more) is not None:
        raise LdrfError(
            f"The forward of {type(model).__name__} makes a plain number of the batch size, so it can be traced for "
            "one size only: where it says len(x), int(x.shape[0]) or x.size(0).item(), let it say x.shape[0]."
        )


def _shapes_in_training(model: nn.Module | None, chunk: Inputs) -> list[torch.Size] | None:
    """Shapes that a copy of the model gives in training mode, where it may call more layers; None where it fails."""
    outputs = outputs_of(copy.deepcopy(model).train() if model is not None else None, chunk)
    return None if outputs is None else [t.shape for t in outputs]


@dataclass(frozen=True)
class _Trial:
    """One model with its graph: what of it can be told apart from its graph before anything is cut, and how far."""

    attempt: Callable[[tuple[Unit, ...]], "_Seen"]
    whole: "_Seen"

    @property
    def rounding(self) -> float:
        return self.whole.far

    def passes(self, tried: tuple[Unit, ...]) -> bool:
        """Whether model and graph are no further apart with these units cut."""
        seen, tolerance = self.attempt(tried), min(MOST, max(LEAST, ROUNDING * self.rounding))
        return seen.far <= tolerance and (seen.alike or not self.whole.alike) and seen.astray <= self.whole.astray


@dataclass(frozen=True)
class _Seen:
    """How far a model's outputs are from the graph's, whether attention works on the same, who reads other values."""

    far: float
    alike: bool
    astray: frozenset[str]


def _trial(trace: Trace, dense: Weights, model: nn.Module, few: Inputs) -> _Trial:
    layers, inputs = {layer.name for layer in trace.layers}, input_values(trace, few)

    def attempt(tried: tuple[Unit, ...]) -> _Seen:
        kept = _without_last(tried)
        copied = cut_copy(model, tried, kept)
        with _attention_shapes() as own, noted_inputs(copied, layers) as noted:
            found = outputs_of(copied, few)
        with _attention_shapes() as wanted:
            values = graph_values(trace, cut_weights(trace, tried, dense, kept), inputs)
        if values is None:
            return _Seen(math.inf, False, frozenset())
        outputs = [values[name] for name in trace.outputs if isinstance(values.get(name), Tensor)]
        return _Seen(gap(found, outputs), sorted(own) == sorted(wanted), misled(trace, noted, values))

    return _Trial(attempt, attempt(()))


def _without_last(units: tuple[Unit, ...]) -> Kept:
    return {unit.name: torch.arange(unit.width - 1) for unit in units}


def _reason(model: nn.Module, chunk: Inputs, unit: Unit, unused: tuple[Skipped, ...]) -> str:
    """Why the model does not run with this unit cut: a layer that no graph shows reads it, or the code has a number."""
    copied = cut_copy(model, (unit,), _without_last((unit,)))
    if copied is None or not unused:
        return SPELT_OUT
    with calls(copied, [layer.name for layer in unused]) as seen:
        outputs_of(copied, chunk)
    stopped = sorted(seen.begun - seen.ended)
    if stopped:
        return f"'{stopped[0]}' reads it too, and nothing uses what that gives"
    seen = called_in_training(copied, [layer.name for layer in unused if layer.reason == TRAINED], chunk)
    stopped = sorted(seen.begun - seen.ended)
    return f"'{stopped[0]}', which the model calls in training only, reads it too" if stopped else SPELT_OUT


def _counted(model: nn.Module, unit: Unit) -> Unit:
    """The unit with those numbers of its modules that equal a size they wrote out: likely its count of heads."""
    found = {
        Attribute(path, name, size)
        for path, size in unit.stated
        for name, value in vars(model.get_submodule(path)).items()
        if type(value) is int and value == size
    }
    return replace(unit, attributes=tuple(sorted(found, key=lambda a: (a.module, a.name))))


def _alone(units: tuple[Unit, ...]) -> tuple[Unit, ...]:
    """Those whose numbers belong to no other unit: one number cannot follow the widths of two."""
    owners = Counter(attribute for unit in units for attribute in unit.attributes)
    return tuple(unit for unit in units if all(owners[a] == 1 for a in unit.attributes))


def largest(units: tuple[Unit, ...], works: Works) -> tuple[Unit, ...]:
    """All units that work together: the whole, or the good ones of its parts, or those of them that add up one by one.

    Blocks of a deep network fail alike, so units are first told apart by their names but for numbers; where the first
    and the last of a kind fail, all of it is left out, and a trial is not run for every layer.
    """
    if not units or works(units):
        return units
    kinds: dict[str, list[Unit]] = {}
    for unit in units:
        kinds.setdefault(re.sub(r"\d+", "*", unit.name), []).append(unit)
    parts = [tuple(kind) for kind in kinds.values()]
    if len(parts) == 1:
        if len(units) == 1 or not (works(units[:1]) or works(units[-1:])):
            return ()
        middle = len(units) // 2
        parts = [units[:middle], units[middle:]]
    good = tuple(unit for part in parts for unit in largest(part, works))
    if not good or works(good):
        return good
    chosen: tuple[Unit, ...] = ()
    for unit in good:
        chosen = (*chosen, unit) if works((*chosen, unit)) else chosen
    return chosen


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
