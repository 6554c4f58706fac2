"""OpenVINO on the CPU: the network as ``ldrf.export`` writes it, for latency."""

import tempfile
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ldrf.deployment.geometry import Piece
from ldrf.deployment.onnx_export import export_onnx
from ldrf.deployment.onnx_pieces import pieces_graph, sum_by_piece
from ldrf.deployment.runtime import Prepared, Runtime
from ldrf.errors import LdrfError, first_line
from ldrf.inputs import Inputs

WARM = 2  # runs that do not count


def prepare(model: nn.Module, inputs: Inputs, threads: int) -> Prepared:
    """The network exported and compiled for the shapes of these inputs."""
    with tempfile.TemporaryDirectory(prefix="ldrf-openvino-") as folder:
        file = Path(folder) / "network.onnx"
        export_onnx(model, inputs, file)
        content = file.read_bytes()
    try:
        fed = [tensor.numpy() for tensor in inputs.tensors()]
        request = _request(content, threads, [list(array.shape) for array in fed], False)
        request.infer(fed)
    except Exception as problem:
        raise LdrfError(f"OpenVINO cannot take {type(model).__name__}: {first_line(problem)}") from problem
    return Prepared(lambda: request.infer(fed))


def _request(content: bytes, threads: int, shapes: list[list[int]] | None, profiled: bool) -> Any:
    import openvino

    core: Any = openvino.Core()  # pyright: ignore[reportAttributeAccessIssue]
    model = core.read_model(content)
    if shapes is not None:
        model.reshape({given: shape for given, shape in zip(model.inputs, shapes, strict=True)})
    options = {
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
        "PERF_COUNT": profiled,
    }
    return core.compile_model(model, "CPU", options).create_infer_request()


def open_file(path: Path, threads: int) -> Callable[[Inputs], list[Tensor]]:
    """A function that runs the ONNX file."""
    request = _request(path.read_bytes(), threads, None, False)

    def call(inputs: Inputs) -> list[Tensor]:
        outputs = request.infer([tensor.numpy() for tensor in inputs.tensors()])
        return [torch.from_numpy(array.copy()) for array in outputs.values()]

    return call


def time_pieces(pieces: Sequence[Piece], threads: int, rounds: int) -> list[list[float]]:
    """Seconds of each piece in each round, as the compiled graph itself notes them node by node."""
    content, feeds = pieces_graph(pieces)
    request = _request(content, threads, None, True)
    times = []
    for turn in range(WARM + rounds):
        request.infer(feeds)
        events = [(e.node_name, e.node_type, e.real_time.total_seconds()) for e in request.get_profiling_info()]
        if turn >= WARM:
            times.append(sum_by_piece(events, len(pieces)))
    return [list(seconds) for seconds in zip(*times, strict=True)]


def _version() -> str | None:
    try:
        return [version(name) for name in ("onnx", "onnxscript", "openvino")][-1]
    except PackageNotFoundError:
        return None


ENTRY = Runtime(_version, "pip install 'ldrf[openvino]'", prepare, time_pieces, open_file=open_file)
