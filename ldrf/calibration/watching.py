"""What submodules read while the whole model runs: models that cannot be traced whole are pruned by such parts."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ldrf.errors import LdrfError, first_line
from ldrf.inputs import Inputs, as_one_list, read_call
from ldrf.runtime.device import OutOfMemory, model_device
from ldrf.runtime.randomness import same_random_numbers

PLAIN = (bool, int, float, str, type(None), torch.dtype, torch.device, torch.Size)


@dataclass(frozen=True)
class Made:
    """A tensor that an earlier call of a part gave: the number of the call, and of the tensor among its outputs."""

    call: int
    leaf: int
    size: tuple[int, ...]  # without its rows


@dataclass(frozen=True)
class Call:
    """One call of a part: its arguments as a flat list of tensors, of what earlier calls made, and of plain values."""

    part: str
    leaves: tuple[Any, ...]
    form: pytree.TreeSpec  # how (args, kwargs) are put together from the leaves

    def __deepcopy__(self, memo: dict[int, Any]) -> "Call":
        return self  # nothing of it ever changes

    @property
    def kind(self) -> tuple[Any, ...]:
        """All but the numbers in the tensors, and how many rows they have."""
        return self.part, str(self.form), tuple(map(_kind, self.leaves))


def _kind(leaf: Any) -> Any:
    if isinstance(leaf, Tensor):
        return tuple(leaf.shape[1:]), leaf.ndim, leaf.dtype
    pieces = getattr(leaf, "pieces", None)
    return leaf if pieces is None else tuple(map(_kind, pieces))


Calls = tuple[Call, ...]


@dataclass(frozen=True)
class Reading:
    """How a batch becomes the arguments of a call: as usual, or as one list of images."""

    listed: bool

    def inputs(self, model: nn.Module, batch: Any) -> Inputs:
        listed = as_one_list(batch) if self.listed else None
        read = listed or read_call(model, batch)
        args, kwargs = pytree.tree_map(lambda v: _ready(v, model_device(model)), (read.args, read.kwargs))
        return Inputs(args, kwargs)


def _ready(value: Any, device: torch.device) -> Any:
    if not isinstance(value, Tensor):
        return value
    return value.to(device, torch.float32) if value.is_floating_point() else value.to(device)


def find_reading(model: nn.Module, batch: Any) -> Reading:
    """The way in which the model takes a batch, by trying; ``model`` is in eval mode."""
    problems: list[Exception] = []
    for listed in (False, True):
        if listed and as_one_list(batch) is None:
            continue
        try:
            run_whole(model, Reading(listed).inputs(model, batch))
        except OutOfMemory:
            raise
        except Exception as problem:
            problems.append(problem)
        else:
            return Reading(listed)
    raise LdrfError(f"{type(model).__name__} cannot take a calibration batch: {first_line(problems[-1])}.")


@torch.no_grad()
def run_whole(model: nn.Module, inputs: Inputs) -> Any:
    """What the model gives, with the same random numbers each time."""
    with same_random_numbers():
        return inputs.call(model)


def watch(model: nn.Module, inputs: Inputs, parts: Mapping[str, nn.Module], linked: Collection[str] = ()) -> Calls:
    """Run the whole model, and note every call of a part with what it reads.

    Where that is what one of the parts in ``linked`` made, it is noted as such.
    """
    calls: list[Call] = []
    with _hooks(parts, calls, linked):
        run_whole(model, inputs)
    return tuple(calls)


@contextmanager
def _hooks(parts: Mapping[str, nn.Module], calls: list[Call], linked: Collection[str]) -> Iterator[None]:
    made: dict[int, tuple[Tensor, int, Made]] = {}  # the tensor itself, so that no other gets its id, and its version
    numbers: list[int] = []  # of the calls that have begun and not ended

    def origin(value: Any) -> Any:
        _, version, where = made.get(id(value), (None, -1, None))
        if where is not None and version == value._version:  # else it was changed in place since
            return where
        return value.detach().to("cpu", copy=True) if isinstance(value, Tensor) else value

    def before(part: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        leaves, form = pytree.tree_flatten((args, kwargs))
        numbers.append(len(calls))
        calls.append(Call(part, tuple(map(origin, leaves)), form))

    def after(output: Any) -> None:
        number = numbers.pop()
        if calls[number].part not in linked:
            return
        for leaf, value in enumerate(pytree.tree_leaves(output)):
            if isinstance(value, Tensor):
                made[id(value)] = value, value._version, Made(number, leaf, tuple(value.shape[1:]))

    handles = []
    for name, module in parts.items():
        handles += [
            module.register_forward_pre_hook(
                lambda _, a, k, name=name: before(name, a, k), prepend=True, with_kwargs=True
            ),
            module.register_forward_hook(lambda _, __, output: after(output)),
        ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def check_plain(calls: Calls) -> None:
    """Raise where a part reads an object that is neither a tensor nor a plain value."""
    for call in calls:
        for leaf in call.leaves:
            if not isinstance(leaf, (Tensor, Made, *PLAIN)):
                raise LdrfError(
                    f"The part '{call.part}' reads a {type(leaf).__name__}: a part must read tensors, so name modules "
                    "inside it."
                )
