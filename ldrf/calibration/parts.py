"""Named submodules of a model as one network: calibrated on what they read while the whole model runs."""

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ldrf.calibration.joining import Joined, join, joined_parts
from ldrf.calibration.network import Whole
from ldrf.calibration.watching import Call, Calls, Made, Reading, check_plain, find_reading, watch
from ldrf.errors import LdrfError, LdrfWarning
from ldrf.inputs import Inputs
from ldrf.tracing.counting import count_call, count_parameters
from ldrf.tracing.export import working_copy
from ldrf.tracing.wrappers import unwrapped
from ldrf.units.targets import Ignore, ignored_modules

ROWS = 32  # per example, at most, of a part that reads many: a box head reads a thousand boxes per image


@dataclass(frozen=True)
class Given:
    """A tensor that is given for every example: its place among the inputs, and its rows per example."""

    place: int
    rows: int


class Parts(nn.Module):
    """The parts of a model, each called as in the whole; their names are those they have there."""

    def __init__(self, parts: Mapping[str, nn.Module], calls: Calls) -> None:
        super().__init__()
        for name, part in parts.items():
            owner = self
            *path, leaf = name.split(".")
            for step in path:
                if step not in owner._modules:
                    owner.add_module(step, nn.Module())
                owner = owner.get_submodule(step)
            owner.add_module(leaf, part)
        self.calls = calls

    def forward(self, *given: Tensor) -> list[Tensor]:
        """Everything that the parts give, in the order of their calls."""
        made: list[list[Any]] = []
        for call in self.calls:
            args, kwargs = pytree.tree_unflatten([_value(v, given, made) for v in call.leaves], call.form)
            made.append(pytree.tree_leaves(self.get_submodule(call.part)(*args, **kwargs)))
        return [value for values in made for value in values if isinstance(value, Tensor)]


def _value(leaf: Any, given: Sequence[Tensor], made: list[list[Any]]) -> Any:
    if isinstance(leaf, Joined):
        return leaf.join([_value(piece, given, made) for piece in leaf.pieces])
    if isinstance(leaf, Made):
        return made[leaf.call][leaf.leaf]
    if isinstance(leaf, Given):
        return given[leaf.place].flatten(0, 1) if leaf.rows > 1 else given[leaf.place]
    return leaf.to(given[0].device) if isinstance(leaf, Tensor) else leaf


@dataclass(frozen=True)
class PartsOf:
    """Parts of a model to be pruned as one network, their calibration batches, and the model around them."""

    model: nn.Module
    parts: Parts
    batches: tuple[Inputs, ...]
    ignore: tuple[str, ...]
    whole: Whole
    example: Inputs  # a batch of the whole model
    others: tuple[Inputs, ...]  # a batch of the whole model for each other shape that the parts read


def read_parts(model: nn.Module, batches: Iterable[Any], names: Sequence[str], ignore: Ignore) -> PartsOf:
    """Run the whole model on all batches, and keep what the named parts read in the most frequent shapes."""
    model = unwrapped(model)
    parts = named_parts(model, names)
    copied = working_copy(model)
    watched = _watched(copied, batches, named_parts(copied, names))
    kinds = Counter(kind for kind, _, _ in watched)
    kept = max(kinds, key=lambda kind: (kind[0], kinds[kind]))  # the first of the most frequent that are fit
    seen = [calls for kind, calls, _ in watched if kind == kept]
    _check_called(seen[0], names)
    if len(seen) < len(watched):
        warnings.warn(
            f"The parts read inputs of {len(kinds)} shapes: {len(seen)} of {len(watched)} batches have the most "
            "frequent one and calibrate, the others only check the slim model. Images of one size use all.",
            LdrfWarning,
            stacklevel=5,
        )
    layout, inputs, times = laid_out(seen)
    examples = {kind: inputs for kind, _, inputs in reversed(watched)}
    macs = count_call(copied, examples[kept]) // inputs[0].rows
    whole = Whole(macs, count_parameters(model), times)
    composed = Parts(parts, layout)
    others = tuple(one for kind, one in examples.items() if kind != kept)
    protected = _protected(model, composed, parts, ignore)
    return PartsOf(model, composed, tuple(inputs), protected, whole, examples[kept], others)


def named_parts(model: nn.Module, names: Sequence[str]) -> dict[str, nn.Module]:
    """The submodules of these names, none inside another."""
    names = [names] if isinstance(names, str) else list(dict.fromkeys(names))
    modules = dict(model.named_modules())
    for name in names:
        if name not in modules or not name:
            known = ", ".join(child for child, module in model.named_children() if _has_parameters(module))
            raise LdrfError(f"Unknown part {name!r} in parts=: expected names of submodules, such as {known}.")
        outer = next((other for other in names if name.startswith(f"{other}.")), None)
        if outer is not None:
            raise LdrfError(f"The part '{name}' in parts= lies within '{outer}': name one of them.")
    if not names:
        raise LdrfError("The 'parts' must name at least one submodule. Got none.")
    return {name: modules[name] for name in names}


def _has_parameters(module: nn.Module) -> bool:
    return next(module.parameters(), None) is not None


Watched = tuple[tuple[Any, ...], Calls, Inputs]


def _watched(model: nn.Module, batches: Iterable[Any], parts: Mapping[str, nn.Module]) -> list[Watched]:
    """Of each batch the kind of its calls, the calls, and the inputs of the whole model."""
    reading: Reading | None = None
    several: set[str] = set()
    watched: list[Watched] = []
    for batch in [batches] if isinstance(batches, Tensor) else batches:
        if reading is None:
            reading = find_reading(model, batch)
            first = watch(model, reading.inputs(model, batch), parts)
            check_plain(first)
            several = joined_parts(parts, first)
        inputs = reading.inputs(model, batch)
        calls = join(watch(model, inputs, parts, parts.keys() - several), several)
        watched.append(((_has_rows(calls), *(call.kind for call in calls)), calls, inputs))
    if not watched:
        raise LdrfError("The calibration batches must hold at least one batch. Got none: pass unlabelled images.")
    return watched


def _has_rows(calls: Calls) -> bool:
    """Whether every part has something to read for each example, as a mask head has where boxes are found."""
    tensors = _tensors(calls)
    return bool(tensors) and all(len(t) >= max(1, len(tensors[0])) for t in tensors)


def _check_called(calls: Calls, names: Sequence[str]) -> None:
    called = {call.part for call in calls}
    for name in [names] if isinstance(names, str) else names:
        if name not in called:
            raise LdrfError(f"The part '{name}' is not called by the model on these batches: name a module that is.")


def laid_out(seen: list[Calls]) -> tuple[Calls, list[Inputs], dict[str, float]]:
    """The calls with a place among the inputs for what differs per example; these inputs; how often the parts work.

    An example is a row of what the first part reads first. A part that reads more rows gets up to ``ROWS`` of them.
    """
    first = [_first_tensor(calls) for calls in seen]
    places = _Places([len(t) for t in first], any(not torch.equal(t, first[0]) for t in first))
    layout, often = [], []
    for number, call in enumerate(seen[0]):
        leaves, times = [], [1.0]
        for at in range(len(call.leaves)):
            leaf, count = places.put(call.part, [calls[number].leaves[at] for calls in seen], often)
            leaves.append(leaf)
            times.append(count)
        layout.append(Call(call.part, tuple(leaves), call.form))
        often.append(max(times))
    inputs = [Inputs(tuple(place[i] for place in places.tensors), {}) for i in range(len(seen))]
    spread = {call.part: [t for c, t in zip(layout, often, strict=True) if c.part == call.part] for call in layout}
    return tuple(layout), inputs, {part: sum(times) / len(times) for part, times in spread.items()}


@dataclass
class _Places:
    """The inputs of the parts as they are found, one after another."""

    rows: list[int]  # examples of each batch
    differ: bool  # whether the batches do
    tensors: list[list[Tensor]] = field(default_factory=list)  # by place and batch

    def put(self, part: str, values: list[Any], often: list[float]) -> tuple[Any, float]:
        """A leaf of a call with places for what it is in each batch, and how many times more rows there are of it."""
        leaf = values[0]
        if isinstance(leaf, Joined):
            cropped = [[leaf.piece(v) if isinstance(v, Tensor) else v for v in one.pieces] for one in values]
            found = [self.put(part, list(pieces), often) for pieces in zip(*cropped, strict=True)]
            return replace(leaf, pieces=tuple(piece for piece, _ in found)), leaf.times * max(t for _, t in found)
        if isinstance(leaf, Made):
            return leaf, often[leaf.call]
        if not isinstance(leaf, Tensor) or not leaf.ndim or (self.differ and _is_constant(values, self.rows)):
            return leaf, 1.0
        per = _rows_per_example(part, values, self.rows)
        self.tensors.append([_evenly(v, n, per) for v, n in zip(values, self.rows, strict=True)])
        return Given(len(self.tensors) - 1, per), len(leaf) / (per * self.rows[0])  # the first batch is counted


def _tensors(calls: Calls) -> list[Tensor]:
    leaves = [leaf for call in calls for leaf in call.leaves]
    flat = [piece for leaf in leaves for piece in (leaf.pieces if isinstance(leaf, Joined) else (leaf,))]
    return [v for v in flat if isinstance(v, Tensor) and v.ndim]


def _first_tensor(calls: Calls) -> Tensor:
    first = next(iter(_tensors(calls)), None)
    if first is None or not len(first):
        raise LdrfError("The parts must read tensors with at least one row. Got none on these batches.")
    return first


def _is_constant(values: list[Tensor], rows: list[int]) -> bool:
    """Whether a tensor is the same in all batches and does not follow their rows, as a table of positions."""
    if any(len(v) == n for v, n in zip(values, rows, strict=True)):
        return False
    return all(torch.equal(v, values[0]) for v in values[1:])


def _rows_per_example(part: str, values: list[Tensor], rows: list[int]) -> int:
    per = min(len(v) // n for v, n in zip(values, rows, strict=True))
    if not per:
        raise LdrfError(
            f"The part '{part}' must read a row per example at least. Got {min(map(len, values))} rows in a batch: "
            "leave it out of parts=, or use batches in which it has more to do."
        )
    return min(per, ROWS)


def _evenly(value: Tensor, examples: int, per: int) -> Tensor:
    """So many rows per example, from all over: [examples, per, ...], or [examples, ...] for one."""
    picked = value[torch.linspace(0, len(value) - 1, examples * per).round().long()]
    return picked.unflatten(0, (examples, per)) if per > 1 else picked


def _protected(model: nn.Module, composed: Parts, parts: Mapping[str, nn.Module], ignore: Ignore) -> tuple[str, ...]:
    """Modules of the parts that must stay: those the user names, and those with tensors that others share."""
    inside = {id(module) for part in parts.values() for module in part.modules()}
    shared = {
        id(t) for m in model.modules() if id(m) not in inside for t in (*m._parameters.values(),) if t is not None
    }
    named = ignored_modules(model, ignore)
    return tuple(
        name
        for name, module in composed.named_modules(remove_duplicate=False)
        if name and (name in named or any(id(t) in shared for t in module._parameters.values() if t is not None))
    )
