"""An ONNX file in whole numbers of eight bits, made by a runtime's own quantiser from a few images."""

import platform
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from io import StringIO
from logging import CRITICAL, disable
from pathlib import Path
from typing import Any

from torch import Tensor

from ldrf.deployment.onnx_export import need_onnx, onnx_session
from ldrf.errors import LdrfError, first_line
from ldrf.files.writing import replacing
from ldrf.inputs import Inputs

Feed = dict[str, Any]  # an array for each input of the file, by name
KINDS = ("Conv", "Gemm", "MatMul", "ConvTranspose")  # nodes whose error is told
FUSED = 3  # nodes behind a layer that are computed with it
DOT_PRODUCTS = ("avx512_vnni", "avx_vnni", "amx_int8")  # as Linux lists what a processor of Intel or AMD can do


@dataclass(frozen=True)
class Quantized:
    """A file in int8, and what there is to know about it."""

    path: Path
    bytes: int
    reduced: bool  # weights have seven bits, as this processor would overflow with eight


def quantize(
    file: str | Path,
    batches: Iterable[Any],
    out: str | Path,
    *,
    runtime: str = "onnxruntime",
    reduce_range: bool | None = None,
) -> Quantized:
    """Write the ONNX ``file`` in int8 to ``out``; the range of every value is taken from ``batches`` of images.

    A batch is a tensor, a dict by the names of the file's inputs, or a tuple whose first entries are the inputs. The
    quantiser is that of ``runtime``: onnxruntime's static one (QDQ, one scale per channel), or NNCF for openvino.
    ``reduce_range`` leaves one bit of the weights free, which onnxruntime needs on processors without dot products of
    eight bits; by default it is found out.
    """
    need_onnx("onnx", "onnxruntime")
    if runtime not in QUANTIZERS:
        raise LdrfError(f"A file in int8 is made for {' or '.join(QUANTIZERS)}. Got the runtime {runtime!r}: name one.")
    file, out = Path(file).expanduser(), Path(out).expanduser()
    reduced = runtime == "onnxruntime" and (not has_dot_products() if reduce_range is None else reduce_range)
    feeds = list(_feeds(file, batches))
    if not feeds:
        raise LdrfError("Quantising needs at least one batch of images. Got none.")
    out.parent.mkdir(parents=True, exist_ok=True)
    with replacing(out) as beside:
        try:
            QUANTIZERS[runtime](file, feeds, beside, reduced)
        except LdrfError:
            raise
        except Exception as problem:
            raise LdrfError(f"The quantiser of {runtime} cannot take '{file}': {first_line(problem)}") from problem
    return Quantized(out, out.stat().st_size, reduced)


def has_dot_products() -> bool:
    """Whether this processor multiplies and adds numbers of eight bits without overflow."""
    if platform.machine().lower() not in ("x86_64", "amd64", "i686"):
        return True
    try:
        flags = Path("/proc/cpuinfo").read_text()
    except OSError:
        return False  # not known: the safe choice
    return any(name in flags for name in DOT_PRODUCTS)


def _static(file: Path, feeds: Sequence[Feed], out: Path, reduced: bool) -> None:
    """By onnxruntime's static quantiser."""
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    with tempfile.TemporaryDirectory(prefix="ldrf-int8-") as folder, _silence():
        prepared = Path(folder) / "prepared.onnx"
        quant_pre_process(str(file), str(prepared), skip_symbolic_shape=True)
        quantize_static(
            str(prepared),
            str(out),
            _reader(feeds),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            reduce_range=reduced,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )


def _nncf(file: Path, feeds: Sequence[Feed], out: Path, reduced: bool) -> None:
    """By NNCF's post-training quantiser."""
    del reduced  # OpenVINO sees to that itself
    import onnx

    try:
        nncf: Any = import_module("nncf")
    except ImportError as problem:
        raise LdrfError("int8 for openvino needs NNCF: pip install 'ldrf[nncf]'.") from problem
    with warnings.catch_warnings(), _silence():
        warnings.simplefilter("ignore")
        made: Any = nncf.quantize(onnx.load(str(file)), nncf.Dataset(feeds), subset_size=len(feeds))
    onnx.save(made, str(out))


QUANTIZERS = {"onnxruntime": _static, "openvino": _nncf}


class _Reader:
    """The images as onnxruntime's calibration reads them, one batch at a time."""

    def __init__(self, feeds: Sequence[Feed]) -> None:
        self.feeds = feeds
        self.rewind()

    def rewind(self) -> None:
        self.left = iter(self.feeds)

    def get_next(self) -> Feed | None:
        return next(self.left, None)

    def __iter__(self) -> Iterator[Feed]:
        return iter(self.feeds)


def _reader(feeds: Sequence[Feed]) -> Any:
    """onnxruntime asks for a class of its own, and takes anything that has its methods."""
    return _Reader(feeds)


@contextmanager
def _silence() -> Iterator[None]:
    """The quantiser prints and logs hints about its own options."""
    disable(CRITICAL)
    try:
        with redirect_stdout(StringIO()):
            yield
    finally:
        disable(0)


def _feeds(file: Path, batches: Iterable[Any]) -> Iterator[Feed]:
    """Every batch as arrays by the names of the file's inputs."""
    try:
        names = [entry.name for entry in onnx_session(str(file), 1).get_inputs()]
    except Exception as problem:
        raise LdrfError(f"onnxruntime cannot read '{file}': {first_line(problem)}") from problem
    for batch in [batches] if isinstance(batches, Tensor) else batches:
        yield _feed(names, batch)


def _feed(names: Sequence[str], batch: Any) -> Feed:
    if isinstance(batch, Mapping) and set(names) <= set(batch):
        values: Sequence[Any] = [batch[name] for name in names]
    elif isinstance(batch, Inputs):
        values = batch.tensors()
    else:
        values = [batch] if isinstance(batch, Tensor) else list(batch) if isinstance(batch, Sequence) else []
    tensors = [v for v in values[: len(names)] if isinstance(v, Tensor)]
    if len(tensors) < len(names):
        raise LdrfError(
            f"A batch to quantise with must hold the file's inputs ({', '.join(names)}). Got {type(batch).__name__}."
        )
    return {name: tensor.detach().cpu().numpy() for name, tensor in zip(names, tensors, strict=True)}


def worst_layers(file: Path, quantized: Path, batches: Iterable[Any], count: int = 3) -> list[tuple[str, float]]:
    """The layers whose outputs int8 changes most, and by which share of their signal."""
    import onnx

    graph = onnx.load(str(file)).graph
    weights = {entry.name for entry in graph.initializer}
    readers = {name: node for node in reversed(graph.node) for name in node.input}
    known = _errors(file, quantized, batches)
    errors: dict[str, float] = {}
    for node in graph.node:
        if node.op_type in KINDS:
            layer = next((i.rpartition(".")[0] or i for i in node.input if i in weights), node.name)
            error = known.get(_rounded(node.output[0], known, readers))
            if error is not None:
                errors[layer] = error
    return sorted(errors.items(), key=lambda pair: -pair[1])[:count]


def _rounded(value: str, known: Mapping[str, float], readers: Mapping[str, Any]) -> str:
    """The value itself, or what its norm and activation make of it: what is fused is rounded once, at the end."""
    for _ in range(FUSED):
        if value in known or value not in readers:
            break
        value = readers[value].output[0]
    return value


def _errors(file: Path, quantized: Path, batches: Iterable[Any]) -> dict[str, float]:
    """Of every value that both files compute, the share of its signal that differs."""
    from onnxruntime.quantization.qdq_loss_debug import (
        collect_activations,
        create_activation_matching,
        modify_model_output_intermediate_tensors,
    )

    feeds = list(_feeds(file, batches))
    with tempfile.TemporaryDirectory(prefix="ldrf-int8-") as folder, _silence():
        values = []
        for name, path in (("float", file), ("int8", quantized)):
            opened = Path(folder) / f"{name}.onnx"
            modify_model_output_intermediate_tensors(str(path), str(opened))
            values.append(collect_activations(str(opened), _reader(feeds)))
        matched: Any = create_activation_matching(values[1], values[0])
    return {name: _share(pair["post_qdq"], pair["float"]) for name, pair in matched.items() if pair.get("float")}


def _share(rounded: Sequence[Any], exact: Sequence[Any]) -> float:
    wrong = sum(float(((a - b) ** 2).sum()) for a, b in zip(rounded, exact, strict=True))
    whole = sum(float((b**2).sum()) for b in exact)
    return (wrong / max(whole, 1e-30)) ** 0.5
