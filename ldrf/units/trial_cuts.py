"""A trial before anything is solved: does the model's own code run with fewer neurons, and compute the right thing?

A forward that spells out a width (``x.view(-1, 512)``, ``x / 8``) shows only when it runs. So each unit loses one
neuron in a copy of the model. A unit is left out if the copy fails, or if it differs from the traced graph with the
same cut. The trial is repeated with random weights, because a dead ReLU can hide a difference that shows later.
"""

import copy
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import nn

from ldrf.channels.attention_scores import with_heads
from ldrf.channels.walk import Flow, follow_channels
from ldrf.errors import LdrfError
from ldrf.inputs import Inputs
from ldrf.tracing.interpreter import Weights, folded, run
from ldrf.tracing.lean_run import input_values
from ldrf.tracing.trace import Trace
from ldrf.units.grouping import units_of
from ldrf.units.indices import Kept
from ldrf.units.layer_inputs import randomised
from ldrf.units.targets import apply_ignore
from ldrf.units.trial import (
    MOST,
    ROUNDING,
    CutTrial,
    cut_copy,
    cut_trial,
    outputs_of,
    unevenly,
    without_last,
)
from ldrf.units.unit import Attribute, Skipped, Unit
from ldrf.units.unused import TRAINED, called_in_training, calls, unused_layers

SPELT_OUT = "the model's forward spells out its width"

Works = Callable[[tuple[Unit, ...]], bool]


@dataclass(frozen=True)
class Usable:
    """The units that can be cut, the other layers with the reason, and the trace with what the units' walk learned."""

    trace: Trace
    units: tuple[Unit, ...]
    skipped: tuple[Skipped, ...]


def usable_units(trace: Trace, dense: Weights, model: nn.Module, chunk: Inputs, protected: frozenset[str]) -> Usable:
    """Units of a traced network that its own code lets us cut.

    Where a view splits channels over several dimensions, as attention does, the graph does not say which of them the
    model's code counts from the width: the last is tried, and where that fails the one before it, and the first; at
    last, whether queries, keys and values of one layer can lose width together.
    """
    outer: dict[str, int] = {}
    flow, few = follow_channels(trace), chunk.first(2)
    ground = _ground(trace, dense, model, few)
    usable = _tried(flow, ground, protected)
    for place, parts, packed in ((-2, 2, False), (0, 3, False), (-1, 2, True)):
        blocked = _blocked(flow, usable.units, parts)
        if blocked:
            trial = {**outer, **dict.fromkeys(blocked, place)}
            other = follow_channels(trace, trial, packed)
            more = _tried(other, ground, protected)
            if len(more.units) > len(usable.units):
                outer, flow, usable = trial, other, more
    return replace(usable, units=_with_heads(usable.trace, dense, few, usable.units))


@torch.no_grad()
def _with_heads(trace: Trace, dense: Weights, few: Inputs, units: tuple[Unit, ...]) -> tuple[Unit, ...]:
    """The same units, those of queries and keys with what makes up each head."""
    if not any(unit.scores for unit in units):
        return units
    values = run(trace, dense, trace.nodes, input_values(trace, few, dense.device))
    return tuple(replace(u, scores=tuple(with_heads(trace, values, s) for s in u.scores)) for u in units)


def _tried(flow: Flow, ground: "_Ground", protected: frozenset[str]) -> Usable:
    """The units of one walk that can be cut."""
    grouped, trace = units_of(flow), flow.followed
    units, ignored = apply_ignore(protected, (*grouped.units, *grouped.coupled))
    units, stuck = cuttable(ground, trace, units)
    return Usable(trace, units, (*grouped.skipped, *ignored, *stuck))


def _blocked(flow: Flow, units: tuple[Unit, ...], parts: int) -> list[str]:
    """Views that split channels of layers that are in no usable unit over at least so many dimensions."""
    nodes = {layer.node for unit in units for layer in (unit.producer, *unit.partners)}
    free = np.concatenate([np.empty(0, int), *(ids for node, ids in flow.produced.items() if node in nodes)])
    views = flow.split.items()
    return [name for name, (ids, count) in views if count >= parts and not np.isin(ids[ids >= 0], free).all()]


@dataclass(frozen=True)
class _Ground:
    """What all cuts of a model are compared with; computed once, however many ways its channels are followed."""

    trace: Trace
    model: nn.Module
    few: Inputs
    trial: CutTrial

    @cached_property
    def randomised_trial(self) -> CutTrial | None:
        """The same with random weights, or None where rounding alone sets model and graph apart."""
        other, positive = randomised(self.model), self.few.map(lambda t: t.abs() if t.is_floating_point() else t)
        trial = cut_trial(self.trace, folded(self.trace, other), other, positive)
        return trial if trial.rounding * ROUNDING < MOST else None

    @cached_property
    def unused(self) -> tuple[Skipped, ...]:
        return unused_layers(self.trace, self.model, self.few)

    @cached_property
    def trained(self) -> list[torch.Size] | None:
        """Shapes in training, where layers are called in training alone."""
        called = any(layer.reason == TRAINED for layer in self.unused)
        return _shapes_in_training(self.model, self.few) if called else None

    def works(self, trace: Trace, tried: tuple[Unit, ...], cut_to: Kept | None = None) -> bool:
        """Whether the model with these units cut does what its graph does; ``trace`` is that of the units' walk.

        Each unit loses its last neuron, or all but those of ``cut_to``.
        """
        kept = without_last(tried) if cut_to is None else {unit.name: cut_to[unit.name] for unit in tried}
        cut = cut_copy(self.model, tried, kept) if self.trained else None
        if self.trained and _shapes_in_training(cut, self.few) != self.trained:
            return False
        if not self.trial.passes(trace, tried, kept):
            return False
        return self.randomised_trial is None or self.randomised_trial.passes(trace, tried, kept)


def _ground(trace: Trace, dense: Weights, model: nn.Module, few: Inputs) -> _Ground:
    trial = cut_trial(trace, dense, model, few)
    if trial.rounding > MOST:
        raise LdrfError(
            f"The traced {type(model).__name__} does not compute what the model computes: its forward depends on "
            "chance or on the values of its inputs, so it cannot be pruned."
        )
    return _Ground(trace, model, few, trial)


def cuttable(ground: _Ground, trace: Trace, units: tuple[Unit, ...]) -> tuple[tuple[Unit, ...], tuple[Skipped, ...]]:
    """The units that can be cut in the model itself, and the others with the reason."""
    model, few, unused = ground.model, ground.few, ground.unused
    units = _with_norms(model, units)
    good = largest(units, lambda tried: ground.works(trace, tried))
    names = {u.name for u in good}
    counted = _alone(tuple(c for u in units if u.name not in names and (c := _counted(model, u)).attributes))
    good = (*good, *largest(counted, lambda tried: ground.works(trace, (*good, *tried))))
    good = _free_of_each_other(ground, trace, good)
    names = {u.name for u in good}
    bad = [(u, _reason(model, few, u, unused)) for u in units if u.name not in names]
    skipped = [Skipped(name, reason) for u, reason in bad for name in u.makers]
    return tuple(sorted(good, key=lambda u: u.start)), (*skipped, *unused)


def _free_of_each_other(ground: _Ground, trace: Trace, units: tuple[Unit, ...]) -> tuple[Unit, ...]:
    """Those of the units that can be cut by any number: widths that the model's code ties fit only when cut alike.

    They are tried all at once, those alone that are cut by default, and every other one.
    """
    kept = unevenly(units)
    inner = tuple(u for u in units if not u.coupled)
    parts = (units, inner if len(inner) < len(units) else (), units[::2], units[1::2])
    for part in parts:
        tried = tuple(u for u in part if u.name in {unit.name for unit in units})
        good = {u.name for u in largest(tried, lambda some: ground.works(trace, some, kept))}
        units = tuple(u for u in units if u.name in good or u.name not in {t.name for t in tried})
    return units


def _shapes_in_training(model: nn.Module | None, chunk: Inputs) -> list[torch.Size] | None:
    """Shapes that a copy of the model gives in training mode, where it may call more layers; None where it fails."""
    outputs = outputs_of(copy.deepcopy(model).train() if model is not None else None, chunk)
    return None if outputs is None else [t.shape for t in outputs]


def _reason(model: nn.Module, chunk: Inputs, unit: Unit, unused: tuple[Skipped, ...]) -> str:
    """Why the model does not run with this unit cut: a layer that no graph shows reads it, or the code has a number."""
    copied = cut_copy(model, (unit,), without_last((unit,)))
    if copied is None or not unused:
        return SPELT_OUT
    with calls(copied, [layer.name for layer in unused]) as called:
        outputs_of(copied, chunk)
    stopped = sorted(called.begun - called.ended)
    if stopped:
        return f"'{stopped[0]}' reads it too, and nothing uses what that gives"
    called = called_in_training(copied, [layer.name for layer in unused if layer.reason == TRAINED], chunk)
    stopped = sorted(called.begun - called.ended)
    return f"'{stopped[0]}', which the model calls in training only, reads it too" if stopped else SPELT_OUT


def _counted(model: nn.Module, unit: Unit) -> Unit:
    """The unit with those numbers of its modules that equal a size they wrote out: likely its count of heads."""
    numbers = {
        Attribute(path, name, size)
        for path, size in unit.stated
        for name, value in vars(model.get_submodule(path)).items()
        if type(value) is int and value == size
    }
    return replace(unit, attributes=tuple(sorted(numbers, key=lambda a: (a.module, a.name))))


def _with_norms(model: nn.Module, units: tuple[Unit, ...]) -> tuple[Unit, ...]:
    """The same units; norms of single channels that belong to one of them alone keep count of its width."""
    norms = (nn.GroupNorm, nn.modules.instancenorm._InstanceNorm)
    counted = [_counted(model, unit).attributes for unit in units]
    counted = [tuple(a for a in own if isinstance(model.get_submodule(a.module), norms)) for own in counted]
    owners = Counter(a for own in counted for a in own)
    return tuple(
        replace(unit, attributes=tuple(a for a in own if owners[a] == 1))
        for unit, own in zip(units, counted, strict=True)
    )


def _alone(units: tuple[Unit, ...]) -> tuple[Unit, ...]:
    """Those whose numbers belong to no other unit: one number cannot follow the widths of two."""
    owners = Counter(attribute for unit in units for attribute in unit.attributes)
    return tuple(unit for unit in units if all(owners[a] == 1 for a in unit.attributes))


def largest(units: tuple[Unit, ...], works: Works) -> tuple[Unit, ...]:
    """All units that work together: the whole, or the good ones of its parts, or those of them that add up one by one.

    Blocks of a deep network fail in the same way. So units are first sorted into kinds by their names without numbers.
    Where the first and the last of a kind fail, all of it is left out, and no trial is run for every layer.
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
