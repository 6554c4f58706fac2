"""A model as torch.export sees it: one program for any batch size, or one sentence on why there is none."""

import copy
import inspect
import traceback
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from ldrf.errors import LdrfError
from ldrf.inputs import Inputs
from ldrf.layout import lay_out


def export_program(model: nn.Module, example: Inputs, decomposed: bool = False) -> torch.export.ExportedProgram:
    """``model`` as torch.export sees it, with a free batch size; ``decomposed`` into the calls we have names for."""
    args = tuple(_two_rows(a) for a in example.args)
    kwargs = {k: _two_rows(v) for k, v in example.kwargs.items()}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            shapes = free_batch(model, example, Dim.AUTO)
            program = torch.export.export(model, args, kwargs, dynamic_shapes=shapes, strict=False)
            return program.run_decompositions({}) if decomposed else program
    except Exception as problem:
        frames = traceback.extract_tb(problem.__traceback__)
        files = {inspect.getsourcefile(type(module)) for module in model.modules()}
        own = [f for f in frames if _is_users(Path(f.filename)) and (f.filename in files or not _installed(f.filename))]
        where = f" at {own[-1].filename}:{own[-1].lineno} ({own[-1].line})" if own else ""
        first = str(problem).strip().splitlines()[0] if str(problem).strip() else type(problem).__name__
        raise LdrfError(f"torch.export cannot trace {type(model).__name__}{where}: {first}") from problem


def _is_users(path: Path) -> bool:
    """Whether a file is neither ldrf's own nor torch's nor generated on the way."""
    return path.is_file() and not {Path(__file__).parent, Path(torch.__file__).parent} & set(path.parents)


def _installed(filename: str) -> bool:
    return "site-packages" in filename or Path(inspect.__file__).parent in Path(filename).parents


def free_batch(model: nn.Module, example: Inputs, batch: Any) -> dict[str, Any]:
    """By parameter of ``forward``: the first dimension of every tensor is ``batch``."""
    names = list(inspect.signature(model.forward).parameters)
    given = {**dict(zip(names, example.args, strict=False)), **example.kwargs}
    return {name: {0: batch} if isinstance(v, Tensor) and v.ndim else None for name, v in given.items()}


def _two_rows(value: Any) -> Any:
    """Two examples are enough to trace; one would let the exporter specialise the batch size."""
    if not isinstance(value, Tensor) or not value.ndim:
        return value
    return value[:2] if len(value) > 1 else torch.cat([value, value])


def working_copy(model: nn.Module) -> nn.Module:
    """A float32 deep copy in eval mode and the usual layout: the one that is traced, never the user's own."""
    return lay_out(copy.deepcopy(model).eval().float().cpu(), torch.contiguous_format)
