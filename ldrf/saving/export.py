"""A slim model as one file for deployment: ONNX, PyTorch's own .pt2, or its plain state dict.

The batch size is left free, unless the model fixes it.
"""

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from ldrf.deployment.onnx_export import export_onnx, need_onnx, onnx_runner
from ldrf.errors import LdrfError, LdrfWarning, first_line
from ldrf.files.writing import replacing
from ldrf.inputs import Inputs, read_inputs, repeated
from ldrf.result import FinetuneResult, PruneResult
from ldrf.runtime.device import Device, exact, find_device, model_device
from ldrf.saving.checkpoint import storable_tensors
from ldrf.tracing.batch_sizes import takes_any_batch
from ldrf.tracing.export import export_program, known_size
from ldrf.tracing.throwaway import without_cache
from ldrf.tracing.wrappers import unwrapped
from ldrf.units.left_out import stand_ins_of

Format = Literal["onnx", "pt2", "state-dict"]
SUFFIXES: dict[str, Format] = {
    ".onnx": "onnx",
    ".pt2": "pt2",
    ".pt": "state-dict",
    ".pth": "state-dict",
    ".safetensors": "state-dict",
}
ROWS = (1, 3)  # the batch sizes at which the file is compared with the model
TOLERANCE = 1e-3  # relative to the largest output


@dataclass(frozen=True)
class Exported:
    """A written file, and how far its outputs are from the model's: ``error`` is the largest absolute difference."""

    path: Path
    format: Format
    error: float
    bytes: int


def export(
    model: nn.Module | PruneResult | FinetuneResult,
    path: str | Path,
    *,
    example: Any = None,
    format: Format | None = None,
    device: Device = "cpu",
) -> Exported:
    """Write ``model`` to one file, in the format that the file's suffix names unless ``format`` does.

    ``example`` is a batch as the model takes it, needed for a plain module only. The file is read again and compared
    with the model at two batch sizes before it takes its place, so a file that is there is a file that works. Where
    the model fixes its batch size, so does the file, and a warning says it.
    A file is made for the CPU, whatever device the model is on; with ``device`` a .pt2 is made for that one.
    """
    path = Path(path).expanduser()
    format = format or format_of(path)
    if format not in get_args(Format):
        raise LdrfError(f"The 'format' must be one of {', '.join(get_args(Format))}. Got {format!r} instead.")
    if path.is_dir():
        raise LdrfError(f"'{path}' is a folder: name the file to write.")
    there = find_device(device)
    if format != "pt2" and there.type != "cpu":
        raise LdrfError(f"Only .pt2 files are made for a device. Got '{there}' for {format}: leave device= out.")
    given = unwrapped(model if isinstance(model, nn.Module) else model.model)
    module = without_cache(copy.deepcopy(given)).eval().to(there)
    if format == "onnx":
        module = _in_float32(module)
    inputs = _as_floats_of(module, _example(model, module, example))
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as beside:
        error = _written(format, module, inputs, beside)
        size = beside.stat().st_size
    return Exported(path, format, error, size)


class _NotTheSame(LdrfError):
    """The file does not do what the model does, at some batch size."""


def _written(format: Format, module: nn.Module, inputs: Inputs, path: Path) -> float:
    """Write the file and return how far it is from the model: for any batch size, or else for that of the inputs."""
    write = WRITERS[format]
    if format == "state-dict" or (not inputs.fixed and takes_any_batch(module, inputs)):
        try:
            return write(module, inputs, path)
        except _NotTheSame:  # the model's code may make a plain number of the batch size
            pass
    error = write(module, replace(inputs, fixed=True), path)
    kind, rows = type(module).__name__, inputs.rows
    told = f"The forward of {kind} fixes its batch size, so the file takes batches of {rows} only."
    warnings.warn(told, LdrfWarning, stacklevel=3)
    return error


def _in_float32(module: nn.Module) -> nn.Module:
    """The module itself in float32: onnxruntime lacks many operators in half precision on the CPU."""
    kinds = {p.dtype for p in module.parameters()} & {torch.float16, torch.bfloat16}
    if kinds:
        kind = str(kinds.pop()).removeprefix("torch.")
        warnings.warn(f"The model is in {kind}, and its ONNX file is written in float32.", LdrfWarning, stacklevel=3)
    return nn.Module.float(module)  # transformers' own refuses what came from a quantised file


def format_of(path: Path) -> Format:
    """The format that a file's suffix names."""
    if path.suffix not in SUFFIXES:
        raise LdrfError(f"'{path}' must end in one of {', '.join(SUFFIXES)}, or the format be given.")
    return SUFFIXES[path.suffix]


def _example(given: nn.Module | PruneResult | FinetuneResult, module: nn.Module, batch: Any) -> Inputs:
    if batch is not None:
        return batch if isinstance(batch, Inputs) else read_inputs(module, batch)
    if isinstance(given, nn.Module):
        raise LdrfError("Exporting a plain module needs an 'example': a batch as the model takes it.")
    return given.example


def _as_floats_of(module: nn.Module, inputs: Inputs) -> Inputs:
    """The inputs on the model's device, floating point in the precision of its own parameters."""
    there = model_device(module)
    kind = next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)
    return inputs.map(lambda t: t.detach().to(there, kind if t.is_floating_point() else None))


def write_onnx(module: nn.Module, inputs: Inputs, path: Path) -> float:
    """Write ONNX and return the largest difference between onnxruntime's outputs and the model's."""
    need_onnx("onnx", "onnxscript", "onnxruntime")
    export_onnx(module, inputs, path)
    try:
        return _difference(module, inputs, onnx_runner(path, torch.get_num_threads()))
    except LdrfError:
        raise
    except Exception as problem:
        raise LdrfError(f"onnxruntime cannot run the {type(module).__name__}: {first_line(problem)}") from problem


def _write_pt2(module: nn.Module, inputs: Inputs, path: Path) -> float:
    """Write what ``torch.export.load`` reads, without ldrf and without the model's own code."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = export_program(module, inputs)
        if stand_ins_of(module):
            program.graph.eliminate_dead_code(lambda n: n.is_impure() and not _is_empty(n))
        torch.export.save(program, path)
        loaded = torch.export.load(path).module()
    return _difference(module, inputs, lambda part: pytree.tree_leaves(part.call(loaded)))


def _is_empty(node: fx.Node) -> bool:
    """Whether a call gives no numbers, as those of a branch that is left out do."""
    value = node.meta.get("val")
    return node.op == "call_function" and isinstance(value, Tensor) and 0 in [known_size(size) for size in value.shape]


def _write_state(module: nn.Module, inputs: Inputs, path: Path) -> float:
    """Write the tensors by name: safetensors if the file is called so, else what ``torch.load`` reads."""
    del inputs
    if path.suffix == ".safetensors":
        save_file(storable_tensors(module), path)
        state = load_file(path)
    else:
        torch.save(module.state_dict(), path)
        state = torch.load(path, weights_only=True)
    own = module.state_dict()
    return max((float((own[n].double() - t.double()).abs().max()) for n, t in state.items() if t.numel()), default=0.0)


WRITERS: dict[Format, Callable[[nn.Module, Inputs, Path], float]] = {
    "onnx": write_onnx,
    "pt2": _write_pt2,
    "state-dict": _write_state,
}


@torch.no_grad()
def _difference(module: nn.Module, inputs: Inputs, run: Callable[[Inputs], list[Any]]) -> float:
    """The largest absolute difference of any output at any of the batch sizes; more than rounding is refused."""
    name, largest = type(module).__name__, 0.0
    precision = max((torch.finfo(p.dtype).eps for p in module.parameters() if p.is_floating_point()), default=0.0)
    for rows in (inputs.rows,) if inputs.fixed else ROWS:
        part = repeated(inputs, rows)
        try:
            wanted = [t for t in pytree.tree_leaves(part.call(module)) if isinstance(t, Tensor)]
            outputs = [t for t in run(part) if isinstance(t, Tensor)]
        except Exception as problem:
            raise _NotTheSame(
                f"The exported {name} does not run with {rows} rows, so it is not written: {first_line(problem)}"
            ) from problem
        for mine, other in zip(wanted, outputs, strict=True):
            gap = float((exact(mine) - exact(other)).abs().max()) if mine.numel() else 0.0
            if not gap <= max(TOLERANCE, 8 * precision) * max(float(exact(mine).abs().max()), 1.0):
                raise _NotTheSame(f"The exported {name} differs from the model by {gap:.2g}, so it is not written.")
            largest = max(largest, gap)
    return largest
