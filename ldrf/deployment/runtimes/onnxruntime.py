"""onnxruntime on the CPU: the network as ``ldrf.export`` writes it."""

import json
import tempfile
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ldrf.deployment.geometry import Piece
from ldrf.deployment.onnx_cutting import cut_onnx
from ldrf.deployment.onnx_export import export_onnx, onnx_runner, onnx_session
from ldrf.deployment.onnx_pieces import pieces_graph, sum_by_piece
from ldrf.deployment.runtime import Prepared, Runtime
from ldrf.errors import LdrfError, first_line
from ldrf.inputs import Inputs
from ldrf.units.indices import Left

SAME = 1e-3  # how far the outputs of a cut file may be from the cut model's, relative to the largest
WARM = 2  # runs that do not count


def prepare(model: nn.Module, inputs: Inputs, threads: int) -> Prepared:
    """The network exported, in a session of its own."""
    import onnx

    with tempfile.TemporaryDirectory(prefix="ldrf-onnx-") as folder:
        file = Path(folder) / "network.onnx"
        export_onnx(model, inputs, file)
        exported = onnx.load(file)
    try:
        return _prepared(model, exported, inputs, threads)
    except Exception as problem:
        raise LdrfError(f"onnxruntime cannot take {type(model).__name__}: {first_line(problem)}") from problem


def _prepared(model: nn.Module, exported: Any, inputs: Inputs, threads: int) -> Prepared:
    session = onnx_session(exported.SerializeToString(), threads)
    names = [entry.name for entry in session.get_inputs()]
    fed = {name: tensor.numpy() for name, tensor in zip(names, inputs.tensors(), strict=True)}
    session.run(None, fed)

    def cut(slim: nn.Module, left: Left) -> Prepared | None:
        """The cut network from the file of the whole one; None where that does not compute what ``slim`` does."""
        try:
            smaller = cut_onnx(exported, left, model.state_dict(), inputs.rows)
            own = onnx_session(smaller.SerializeToString(), threads)
            if not _same(own.run(None, fed), slim, inputs):
                return None
        except Exception:  # a constant somewhere else holds the old width
            return None
        return Prepared(lambda: own.run(None, fed))

    return Prepared(lambda: session.run(None, fed), cut)


@torch.no_grad()
def _same(outputs: list[Any], slim: nn.Module, inputs: Inputs) -> bool:
    wanted = [t for t in pytree.tree_leaves(inputs.call(slim)) if isinstance(t, Tensor)]
    pairs = list(zip(wanted, (torch.from_numpy(o) for o in outputs), strict=True))
    return all(a.shape == b.shape and float((a - b).abs().max()) <= SAME * float(a.abs().max()) for a, b in pairs)


def time_pieces(pieces: Sequence[Piece], threads: int, rounds: int) -> list[list[float]]:
    """Seconds of each piece in each round, as the session itself notes them node by node."""
    model, feeds = pieces_graph(pieces)
    with tempfile.TemporaryDirectory(prefix="ldrf-onnx-") as folder:
        session = onnx_session(model, threads, str(Path(folder) / "profile"))
        for _ in range(WARM + rounds):
            session.run(None, feeds)
        events = json.loads(Path(session.end_profiling()).read_text())
    runs: list[list[tuple[str, str, float]]] = []
    for event in sorted((e for e in events if "ts" in e), key=lambda e: e["ts"]):
        if event["name"] == "model_run":
            runs.append([])
        elif event.get("cat") == "Node" and event["name"].endswith("_kernel_time") and runs:
            runs[-1].append((event["name"], event["args"].get("op_name", ""), event["dur"] * 1e-6))
    by_run = [sum_by_piece(run, len(pieces)) for run in runs[WARM:]]
    return [list(times) for times in zip(*by_run, strict=True)]


def _version() -> str | None:
    try:
        return [version(name) for name in ("onnx", "onnxscript", "onnxruntime")][-1]
    except PackageNotFoundError:
        return None


ENTRY = Runtime(_version, "pip install 'ldrf[onnx]'", prepare, time_pieces, open_file=onnx_runner)
