"""A network as ONNX, with a free batch size, and a session of onnxruntime that runs it."""

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ldrf.errors import LdrfError, first_line
from ldrf.inputs import Inputs
from ldrf.tracing.export import export_program, free_batch


def export_onnx(module: nn.Module, inputs: Inputs, path: Path) -> None:
    """Write ``module`` to one ONNX file."""
    need_onnx("onnx", "onnxscript")
    program = export_program(module, inputs)
    shapes = free_batch(module, inputs, "batch")
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            names = _output_names(inputs.call(module))
            torch.onnx.export(
                program,
                (),
                path,
                dynamo=True,
                external_data=False,
                verbose=False,
                dynamic_shapes=shapes,
                output_names=names,
            )
        except Exception as problem:
            raise LdrfError(f"{type(module).__name__} cannot be written as ONNX: {first_line(problem)}") from problem


def need_onnx(*names: str) -> None:
    """Raise unless these packages are installed."""
    for name in names:
        try:
            __import__(name)
        except ImportError as problem:
            raise LdrfError(f"ONNX needs {name}: pip install 'ldrf[onnx]'.") from problem


def _output_names(outputs: Any) -> list[str] | None:
    """What to call the outputs in the file: the keys of a dict, or 'output'."""
    if isinstance(outputs, Mapping) and all(isinstance(t, Tensor) for t in outputs.values()):
        return [str(key) for key in outputs]
    return ["output"] if isinstance(outputs, Tensor) else None


def onnx_session(model: bytes | str, threads: int, profile: str | None = None) -> Any:
    """A session of onnxruntime on the CPU; ``profile`` is how the file begins that it notes times in."""
    need_onnx("onnxruntime")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    if profile is not None:
        options.enable_profiling, options.profile_file_prefix = True, profile
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def onnx_runner(path: Path, threads: int) -> Callable[[Inputs], list[Tensor]]:
    """A function that runs the ONNX file in onnxruntime on the CPU with this many threads."""
    session = onnx_session(str(path), threads)
    names = [entry.name for entry in session.get_inputs()]

    def call(inputs: Inputs) -> list[Tensor]:
        fed = {n: t.numpy() for n, t in zip(names, inputs.tensors(), strict=True)}
        return [torch.from_numpy(output) for output in session.run(None, fed)]

    return call
