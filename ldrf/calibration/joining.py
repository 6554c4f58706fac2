"""A part that works on several maps with the same weights, as the head of a pyramid: pieces of all maps in one call.

A weight that is used by several calls keeps its width. So pieces of one size, out of the middle of every map, become
rows of a single call. Maps that are too small for a piece do not take part in the calibration.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ldrf.calibration.watching import Call, Calls, Made
from ldrf.runtime.device import model_device

POSITIONS = 64  # of a piece, at least, where there is a map that has as many


@dataclass(frozen=True)
class Joined:
    """Several tensors that are read as rows of one, and how much smaller that is than all of them together."""

    pieces: tuple[Any, ...]
    size: tuple[int, ...]  # of a piece: its height and width
    times: float

    def join(self, values: list[Tensor]) -> Tensor:
        """The pieces of each example one after another: [examples * pieces, channels, ...]."""
        return torch.stack([self.piece(value) for value in values], 1).flatten(0, 1)

    def piece(self, value: Tensor) -> Tensor:
        """The middle of a map [rows, channels, ...]."""
        for dim, size in enumerate(self.size, 2):
            value = value.narrow(dim, (value.shape[dim] - size) // 2, size)
        return value


def joined_parts(parts: Mapping[str, nn.Module], calls: Calls) -> set[str]:
    """The parts that use their weights several times in a pass, on maps that can be joined."""
    several = {call.part for call in calls if sum(c.part == call.part for c in calls) > 1}
    listing = {call.part for call in calls if _with_lists(call) is not None and _repeats(parts[call.part], call)}
    return {part for part in several if _merged([c for c in calls if c.part == part]) is not None} | listing


@torch.no_grad()
def _repeats(part: nn.Module, call: Call) -> bool:
    """Whether a layer is called several times in one call of a part."""
    count: dict[str, int] = {}

    def note(name: str) -> None:
        count[name] = count.get(name, 0) + 1

    leaves = [(name, m) for name, m in part.named_modules() if next(m.parameters(recurse=False), None) is not None]
    handles = [m.register_forward_pre_hook(lambda *_, name=name: note(name)) for name, m in leaves]
    try:
        there = model_device(part)
        leaves = [v.to(there) if isinstance(v, Tensor) else v for v in call.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, call.form)
        part(*args, **kwargs)
    finally:
        for handle in handles:
            handle.remove()
    return max(count.values(), default=0) > 1


def join(calls: Calls, parts: set[str]) -> Calls:
    """The calls with one for each of these parts, which no other call may read from."""
    done: list[Call] = []
    numbers: dict[int, int] = {}
    for number, call in enumerate(calls):
        if call.part in parts:
            own = [c for c in calls if c.part == call.part]
            if call is not own[-1]:
                continue
            call = (_merged(own) if len(own) > 1 else None) or call
            call = _with_lists(call) or call
        numbers[number] = len(done)
        done.append(replace(call, leaves=tuple(_renumbered(leaf, numbers) for leaf in call.leaves)))
    return tuple(done)


def _renumbered(leaf: Any, numbers: dict[int, int]) -> Any:
    if isinstance(leaf, Joined):
        return replace(leaf, pieces=tuple(_renumbered(piece, numbers) for piece in leaf.pieces))
    return replace(leaf, call=numbers[leaf.call]) if isinstance(leaf, Made) else leaf


def _merged(calls: list[Call]) -> Call | None:
    """Several calls as one that reads pieces of what all of them read; None where they differ in more than size."""
    if len({str(call.form) for call in calls}) > 1:
        return None
    leaves = []
    for values in zip(*(call.leaves for call in calls), strict=True):
        if any(isinstance(v, Tensor | Made) for v in values):
            leaves.append(_joined(values))
        else:
            leaves.append(values[0] if all(v == values[0] for v in values) else None)
    return None if any(v is None for v in leaves) else replace(calls[-1], leaves=tuple(leaves))


def _with_lists(call: Call) -> Call | None:
    """A call in which every list of maps is a list of one, joined of all; None where it reads no such list."""
    args, kwargs = pytree.tree_unflatten(call.leaves, call.form)

    def single(value: Any) -> Any:
        listed = isinstance(value, list | tuple) and len(value) > 1
        whole = _joined(tuple(value)) if listed else None
        return value if whole is None else [whole]

    changed = tuple(map(single, args)), {key: single(value) for key, value in kwargs.items()}
    leaves, form = pytree.tree_flatten(changed)
    return replace(call, leaves=tuple(leaves), form=form) if any(isinstance(v, Joined) for v in leaves) else None


def _joined(values: tuple[Any, ...]) -> Joined | None:
    """Tensors with the same channels as pieces of one size; None where they are something else."""
    if not all(isinstance(v, Made) or (isinstance(v, Tensor) and v.ndim > 1) for v in values):
        return None
    sizes = [v.size if isinstance(v, Made) else tuple(v.shape[1:]) for v in values]
    if len({(len(size), size[:1]) for size in sizes}) > 1:
        return None
    areas = [math.prod(size[1:]) for size in sizes]
    enough = min((area for area in areas if area >= POSITIONS), default=max(areas))
    taken = [i for i, area in enumerate(areas) if area >= enough]
    size = tuple(min(sizes[i][dim] for i in taken) for dim in range(1, len(sizes[0])))
    times = sum(areas) / (len(taken) * math.prod(size))
    return Joined(tuple(values[i] for i in taken), size, times)
