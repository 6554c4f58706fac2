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
from ldrf.units.left_out import stand_ins_of


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
    if stand_ins_of(module):
        _add_constants_as_they_are(path)


def _add_constants_as_they_are(path: Path) -> None:
    """Constants in place of branches are added without being spread to the size of the map first."""
    import onnx

    model = onnx.load(path)
    graph = model.graph
    shapes = {v.name: _shape(v) for v in (*graph.value_info, *graph.input, *graph.output)}
    constants = {tensor.name for tensor in graph.initializer}
    spread = {n.output[0]: n.input[0] for n in graph.node if n.op_type == "Expand" and n.input[0] in constants}
    for node in graph.node:
        wide = [name for name in node.input if name in spread] if node.op_type == "Add" else []
        others = [name for name in node.input if name not in spread]
        if wide and others and shapes.get(others[0]) and shapes.get(others[0]) == shapes.get(node.output[0]):
            node.input[list(node.input).index(wide[0])] = spread[wide[0]]
    for _ in range(3):  # the spreading itself, then what it alone read: a shape, and the sizes it was put together from
        read = {name for node in graph.node for name in node.input} | {output.name for output in graph.output}
        for node in [n for n in graph.node if n.op_type in ("Expand", "Concat", "Shape")]:
            if not read & set(node.output):
                graph.node.remove(node)
    onnx.save(model, path)


def _shape(value: Any) -> list[Any]:
    """A value's sizes, numbers or names; none where they are not known."""
    return [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]


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
    # Its idle threads would go on waiting at full speed while another session is timed.
    options.add_session_config_entry("session.force_spinning_stop", "1")
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
