"""Which submodules of a model that cannot be traced whole can be: the largest that read tensors and export."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, TypeVar

from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ldrf.calibration.parts import Parts, PartsOf, laid_out, read_parts
from ldrf.calibration.watching import Calls, check_plain, find_reading, watch
from ldrf.errors import CannotTrace, LdrfError, LdrfWarning
from ldrf.inputs import as_one_list, read_call
from ldrf.runtime.device import model_device
from ldrf.tracing.export import export_program, working_copy
from ldrf.tracing.wrappers import unwrapped
from ldrf.units.targets import Ignore

LAYERS = (nn.modules.conv._ConvNd, nn.Linear)
T = TypeVar("T")


def whole_or_parts(
    model: nn.Module,
    batches: Iterable[Any],
    parts: Sequence[str] | None,
    ignore: Ignore,
    read: Callable[[nn.Module, Iterable[Any], Ignore], T],
) -> tuple[T, PartsOf | None]:
    """What ``read`` makes of the model; or of the named parts of it, and what is around them.

    A model that takes lists of images, as detectors do, is read by the parts that can be traced.
    """
    once = isinstance(batches, Iterator)  # its first batch is kept, as it is looked at again; the rest may be too much
    first = list(islice(batches, 1)) if once else batches
    if parts is None:
        try:
            return read(model, chain(first, batches) if once else batches, ignore), None
        except LdrfError as problem:
            if isinstance(problem, CannotTrace):
                raise naming_parts(problem, model, first) from problem
            if not takes_lists(model, first):
                raise
        parts = find_parts(model, first)
    of = read_parts(model, chain(first, batches) if once else batches, parts, ignore)
    return read(of.parts, of.batches, of.ignore), of


def takes_lists(model: nn.Module, batches: Iterable[Any]) -> bool:
    """Whether the first batch holds lists of tensors that the model runs on."""
    batch = next(iter(batches), None) if isinstance(batches, Iterable) else None
    if isinstance(batch, Tensor) or batch is None:
        return False
    try:
        copied = working_copy(unwrapped(model))
        nested = _nested(copied, batch)
        return (nested or as_one_list(batch) is not None) and (find_reading(copied, batch).listed or nested)
    except LdrfError:
        return False


def _nested(model: nn.Module, batch: Any) -> bool:
    inputs = read_call(model, batch)
    given = [v for v in (*inputs.args, *inputs.kwargs.values()) if not isinstance(v, Tensor)]
    return any(isinstance(leaf, Tensor) for leaf in pytree.tree_leaves(given))


def find_parts(model: nn.Module, batches: Iterable[Any]) -> list[str]:
    """The parts by which a model is pruned that takes lists of tensors, told in a warning."""
    found, kind = traceable_parts(model, batches), type(unwrapped(model)).__name__
    if not found:
        raise LdrfError(f"{kind} takes lists of tensors, and no submodule of it that has layers can be traced.")
    warnings.warn(
        f"{kind} takes lists of tensors, so it is not traced whole: its parts {', '.join(found)} are pruned in place. "
        "Name others by parts= (--parts).",
        LdrfWarning,
        stacklevel=6,
    )
    return found


def naming_parts(problem: LdrfError, model: nn.Module, batches: Iterable[Any]) -> LdrfError:
    """The same error with the names of parts that can be traced, if there are any."""
    try:
        found = traceable_parts(model, batches)
    except Exception:
        return problem
    names = ", ".join(repr(name) for name in found)
    return LdrfError(f"{problem} Submodules of it can be traced: try parts=[{names}].") if found else problem


def traceable_parts(model: nn.Module, batches: Iterable[Any]) -> list[str]:
    """The largest submodules that can be traced on what they read in the first batch."""
    copied = working_copy(unwrapped(model))
    batch = next(iter(batches))
    inputs = find_reading(copied, batch).inputs(copied, batch)
    found: list[str] = []
    level = _children("", copied)
    while level:
        calls = watch(copied, inputs, level)
        traced = [n for n, m in level.items() if _is_traced(n, m, tuple(call for call in calls if call.part == n))]
        found += traced
        rest = {name: module for name, module in level.items() if name not in traced}
        level = {name: inner for outer, module in rest.items() for name, inner in _children(outer, module).items()}
    return found


def _children(name: str, module: nn.Module) -> dict[str, nn.Module]:
    """The children that have layers, by their full names; a single layer has nothing inside to cut."""
    children = {f"{name}.{child}" if name else child: inner for child, inner in module.named_children()}
    return {
        child: inner for child, inner in children.items() if sum(isinstance(m, LAYERS) for m in inner.modules()) > 1
    }


def _is_traced(name: str, module: nn.Module, calls: Calls) -> bool:
    """Whether a module is called, and can be exported with what it reads."""
    try:
        check_plain(calls)
        layout, inputs, _ = laid_out([calls])
        export_program(Parts({name: module}, layout), inputs[0].to(model_device(module)))
    except LdrfError:
        return False
    return True
