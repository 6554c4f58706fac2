"""A model as torch.export sees it: one program for any batch size, or one sentence on why there is none.

A model that takes one size only has a program for that size.
"""

import copy
import inspect
import io
import logging
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.utils import _pytree as pytree

from ldrf.errors import CannotTrace, LdrfError, first_line
from ldrf.inputs import Inputs
from ldrf.runtime.device import OutOfMemory, model_device
from ldrf.runtime.layout import lay_out
from ldrf.tracing.throwaway import lent_forward, plain_outputs, throwaway_copy, without_cache


def export_program(model: nn.Module, example: Inputs, decomposed: bool = False) -> torch.export.ExportedProgram:
    """``model`` as torch.export sees it, with a free batch size; ``decomposed`` into the calls we have names for.

    Where the number of rows is fixed, the program is for that number.
    """
    given = example if example.fixed else example.map(_two_rows)
    try:
        with warnings.catch_warnings(), _silent_torch():
            warnings.simplefilter("ignore")
            program = _exported(throwaway_copy(model, given), given)
            return program.run_decompositions({}) if decomposed else program
    except Exception as problem:
        frames = traceback.extract_tb(problem.__traceback__)
        files = {_source_file(type(module)) for module in model.modules()}
        own = [f for f in frames if _is_users(Path(f.filename)) and (f.filename in files or not _installed(f.filename))]
        where = f" at {own[-1].filename}:{own[-1].lineno} ({own[-1].line})" if own else ""
        first = first_line(problem)
        raise CannotTrace(f"torch.export cannot trace {type(model).__name__}{where}: {first}") from problem


@contextmanager
def _silent_torch() -> Iterator[None]:
    """Within, torch neither logs nor prints what it could not trace: the sentence that follows says it."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(before)


def _exported(model: nn.Module, given: Inputs) -> torch.export.ExportedProgram:
    """The program by running the model's code; where that reads a batch as a plain number, by reading the code."""
    args, kwargs = given.args, given.kwargs
    shapes = free_batch(model, given, Dim.AUTO)
    with _keywords_by_name(model, kwargs):
        with plain_outputs(model):
            program = torch.export.export(model, args, kwargs, dynamic_shapes=shapes, strict=False)
        if given.fixed or has_free_batch(program):
            return program
        try:
            other = torch.export.export(model, args, kwargs, dynamic_shapes=shapes, strict=True)
        except Exception:
            return program
    return other if has_free_batch(other) else program


@contextmanager
def _keywords_by_name(model: nn.Module, kwargs: dict[str, Any]) -> Iterator[None]:
    """Within, ``forward`` names the keywords it is called with: torch.export cannot follow a bare ``**kwargs``."""
    forward = model.forward
    own = list(inspect.signature(forward).parameters.values())
    stated = [p for p in own if p.kind is not p.VAR_KEYWORD]
    unstated = [name for name in kwargs if name not in {p.name for p in stated}]
    if len(stated) == len(own) or not unstated:
        yield
        return

    def named(*args: Any, **given: Any) -> Any:
        return forward(*args, **given)

    more = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in unstated]
    vars(named)["__signature__"] = inspect.Signature([*stated, *more])
    with lent_forward(model, named):
        yield


def has_free_batch(program: torch.export.ExportedProgram) -> bool:
    """Whether the number of examples is a symbol, not a number that the model's code made of it, as ``len(x)`` does."""
    given = set(program.graph_signature.user_inputs)
    values = [n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder" and n.name in given]
    return any(isinstance(v, Tensor) and v.ndim and known_size(v.shape[0]) is None for v in values)


def known_size(size: Any) -> int | None:
    """A size as a number, or None where it is a symbol that stands for many.

    A symbol is read, not turned into an int: that would fix it from here on.
    """
    if isinstance(size, int):
        return size
    return None if size.node.expr.free_symbols else int(size.node.expr)


def _source_file(kind: type) -> str | None:
    """The file a class is written in; one that was typed in or executed has none."""
    try:
        return inspect.getsourcefile(kind)
    except (TypeError, OSError):
        return None


def _is_users(path: Path) -> bool:
    """Whether a file is neither ldrf's own nor torch's nor generated on the way."""
    return path.is_file() and not {Path(__file__).parents[1], Path(torch.__file__).parent} & set(path.parents)


def _installed(filename: str) -> bool:
    return "site-packages" in filename or Path(inspect.__file__).parent in Path(filename).parents


def free_batch(model: nn.Module, example: Inputs, batch: Any) -> dict[str, Any] | None:
    """By parameter of ``forward``: the first dimension of every tensor is ``batch``; None where it is fixed."""
    if example.fixed:
        return None
    own = inspect.signature(model.forward)
    given = dict(own.bind(*example.args, **example.kwargs).arguments)
    for parameter in own.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            given |= given.pop(parameter.name, {})
    return pytree.tree_map(lambda v: {0: batch} if isinstance(v, Tensor) and v.ndim else None, given)


def _two_rows(value: Tensor) -> Tensor:
    """Two examples are enough to trace; one would let the exporter specialise the batch size."""
    if not value.ndim:
        return value
    return value[:2] if len(value) > 1 else torch.cat([value, value])


def working_copy(model: nn.Module, device: torch.device | None = None) -> nn.Module:
    """A float32 deep copy in eval mode and the usual layout, on ``device`` or where the model is: the one that is
    traced, never the user's own."""
    try:
        copied = copy.deepcopy(model)
    except OutOfMemory:
        raise
    except Exception as problem:
        raise LdrfError(
            f"{type(model).__name__} cannot be copied, and a copy is what is pruned: {first_line(problem)} Where "
            "weights are computed from others, as by torch.nn.utils.weight_norm, take that off first "
            "(remove_weight_norm)."
        ) from problem
    _check_not_quantised(copied)
    there = device or model_device(model)
    # As torch does it: transformers refuses to cast what it has read from a quantised file, even if no weight is.
    plain = nn.Module.float(without_cache(copied).eval())
    return lay_out(plain.to(there), torch.contiguous_format)


def _check_not_quantised(model: nn.Module) -> None:
    """Raise where a weight is stored in whole numbers, which is nothing to prune."""
    weights = [(n, t) for n, t in model.named_parameters() if not (t.is_floating_point() or t.is_complex())]
    packed = [(n, t) for n, t in model.named_buffers() if n.rpartition(".")[2] == "qweight"]
    for name, tensor in (*weights, *packed):
        raise LdrfError(
            f"{type(model).__name__} is quantised (its '{name}' is in {str(tensor.dtype).removeprefix('torch.')}), and "
            "only floating-point weights can be pruned: load it without quantisation, or call its dequantize() first."
        )
