"""Dense and slim network timed side by side, as a whole and layer by layer: where the speed-up is won and lost."""

import copy
import platform
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from safetensors.torch import save
from torch import nn
from torch.utils.benchmark import Measurement

from ldrf.deployment.onnx_export import onnx_runner
from ldrf.errors import LdrfError
from ldrf.inputs import Inputs, repeated
from ldrf.measuring.memory import peak_bytes
from ldrf.measuring.timing import LayerTiming, Networks, take_turns, time_layers
from ldrf.runtime.device import Device, device_name, find_device, model_device, reset_peak, synchronise
from ldrf.runtime.device import peak_bytes as device_peak
from ldrf.runtime.progress import progress
from ldrf.runtime.tables import table
from ldrf.saving.checkpoint import storable_tensors
from ldrf.saving.export import write_onnx
from ldrf.tracing.batch_sizes import takes
from ldrf.tracing.counting import count_macs, count_parameters

Backend = Literal["torch", "onnxruntime"]


@dataclass(frozen=True)
class Footprint:
    """What does not depend on the machine: MACs an example, parameters, bytes of the weights file and of memory.

    ``memory`` is the weights and the activations alive at once, at most, at the largest batch measured: counted, and on
    an accelerator also as its own account has it.
    """

    macs: int
    parameters: int
    file: int
    memory: int
    device_memory: int | None = None


@dataclass(frozen=True)
class Timing:
    """Milliseconds of one call: the median, and the range that the middle half of all calls lies in."""

    network: str
    backend: Backend
    batch: int
    threads: int
    median: float
    low: float
    high: float

    @property
    def throughput(self) -> float:
        """Examples a second."""
        return 1000 * self.batch / self.median


@dataclass(frozen=True)
class Bench:
    """All that was measured; ``layers`` at the largest batch and the first number of threads, in torch."""

    dense: Footprint
    slim: Footprint
    timings: tuple[Timing, ...]
    layers: tuple[LayerTiming, ...]
    rest: tuple[float, float]  # milliseconds outside of the layers: norms, activations, pools, additions
    machine: dict[str, str]

    def as_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        record = asdict(self)
        record["timings"] = [{**asdict(t), "throughput": t.throughput} for t in self.timings]
        record["layers"] = [{**asdict(x), "theory": x.theory, "measured": x.measured} for x in self.layers]
        return record

    def __str__(self) -> str:
        parts = [_footprints(self), _timings(self)]
        if self.layers:
            parts += [_layers(self)]
        return "\n\n".join(parts)


def bench(
    dense: nn.Module,
    slim: nn.Module,
    example: Inputs,
    *,
    batches: Sequence[int] = (1, 32),
    threads: Sequence[int] = (1,),
    backends: Sequence[Backend] = ("torch",),
    seconds: float = 1.0,
    device: Device | None = None,
) -> Bench:
    """Time both networks on ``example`` at every batch size, thread count and backend, taking turns.

    ``seconds`` is spent on each network in each case, and a tenth of it on each layer. Networks run on ``device``, by
    default where the slim one is.
    """
    there = find_device(device, slim)
    _check(batches, threads, backends, seconds, there)
    networks, example = {"dense": _prepared(dense, there), "slim": _prepared(slim, there)}, example.to(there)
    _check_sizes(networks, example, batches, backends)
    cases: list[tuple[Backend, int, int]] = [(b, batch, n) for b in backends for batch in batches for n in threads]
    timings: list[Timing] = []
    with tempfile.TemporaryDirectory(prefix="ldrf-bench-") as folder:
        files = _onnx_files(networks, example, Path(folder)) if "onnxruntime" in backends else {}
        for backend, batch, count in progress(cases, "bench"):
            inputs = repeated(example, batch)
            calls = {
                name: _caller(backend, network, files.get(name), inputs, count) for name, network in networks.items()
            }
            measured = take_turns(calls, count, seconds, there)
            timings += [_timing(name, backend, batch, count, m) for name, m in measured.items()]
    largest = repeated(example, max(batches))
    layers = time_layers(networks, largest, threads[0], seconds / 10)
    whole = _whole(networks, largest, timings, max(batches), threads[0], seconds)
    rest = tuple(whole[i] - sum(layer.milliseconds[i] for layer in layers) for i in (0, 1))
    costs = {name: _footprint(network, largest) for name, network in networks.items()}
    return Bench(costs["dense"], costs["slim"], tuple(timings), layers, (rest[0], rest[1]), _machine(there))


def _check(
    batches: Sequence[int], threads: Sequence[int], backends: Sequence[str], seconds: float, device: torch.device
) -> None:
    for name, values in (("batches", batches), ("threads", threads)):
        if not values or any(v < 1 for v in values):
            raise LdrfError(f"The '{name}' must be whole numbers from 1 up. Got {list(values)} instead.")
    unknown = [b for b in backends if b not in get_args(Backend)]
    if unknown or not backends:
        raise LdrfError(f"The 'backends' must be among {', '.join(get_args(Backend))}. Got {list(backends)} instead.")
    if "onnxruntime" in backends and device.type != "cpu":
        raise LdrfError(f"onnxruntime is timed on the CPU. Got '{device}': pass device='cpu' (--device cpu).")
    if not seconds > 0:
        raise LdrfError(f"The 'seconds' must be above 0. Got {seconds} instead.")


def _check_sizes(networks: Networks, example: Inputs, batches: Sequence[int], backends: Sequence[str]) -> None:
    """Raise for batch sizes that a network, or its ONNX file, cannot take."""
    for batch in batches:
        inputs, exported = repeated(example, batch), example.fixed and "onnxruntime" in backends
        wrong = [m for m in networks.values() if not takes(m, inputs)] or (exported and batch != example.rows)
        if wrong:
            kind = type(networks["slim"]).__name__
            raise LdrfError(f"{kind} cannot take a batch of {batch}: name sizes that it takes by batches= (--batch).")


def _prepared(model: nn.Module, device: torch.device) -> nn.Module:
    return copy.deepcopy(model).eval().to(device).float().requires_grad_(False)


def _onnx_files(networks: Networks, example: Inputs, folder: Path) -> dict[str, Path]:
    for name, network in networks.items():
        write_onnx(network, example, folder / f"{name}.onnx")
    return {name: folder / f"{name}.onnx" for name in networks}


def _caller(backend: Backend, network: nn.Module, file: Path | None, inputs: Inputs, threads: int) -> Callable[[], Any]:
    if backend == "torch" or file is None:
        return lambda: inputs.call(network)
    run = onnx_runner(file, threads)
    return lambda: run(inputs)


def _timing(network: str, backend: Backend, batch: int, threads: int, measured: Measurement) -> Timing:
    times = torch.tensor(measured.times, dtype=torch.float64) * 1000
    low, median, high = times.quantile(torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)).tolist()
    return Timing(network, backend, batch, threads, median, low, high)


def _whole(
    networks: Networks, inputs: Inputs, timings: list[Timing], batch: int, threads: int, seconds: float
) -> list[float]:
    """Milliseconds of dense and slim in torch in the case the layers are timed in."""
    known = {t.network: t.median for t in timings if (t.backend, t.batch, t.threads) == ("torch", batch, threads)}
    if not known:
        calls = {name: _caller("torch", network, None, inputs, threads) for name, network in networks.items()}
        device = inputs.tensors()[0].device
        taken = take_turns(calls, threads, seconds, device)
        known = {name: 1000 * measured.median for name, measured in taken.items()}
    return [known["dense"], known["slim"]]


def _footprint(network: nn.Module, inputs: Inputs) -> Footprint:
    size = len(save(storable_tensors(network)))
    costs = count_macs(network, inputs), count_parameters(network), size, peak_bytes(network, inputs)
    return Footprint(*costs, _device_memory(network, inputs))


@torch.no_grad()
def _device_memory(network: nn.Module, inputs: Inputs) -> int | None:
    """The most bytes that an accelerator has in use in one call, without what else lies there; None of the CPU."""
    device = model_device(network)
    reset_peak(device)
    before = device_peak(device)
    inputs.call(network)
    synchronise(device)
    after = device_peak(device)
    if before is None or after is None:
        return None
    tensors = (*network.parameters(), *network.buffers(), *inputs.tensors())
    return after - before + sum(t.numel() * t.element_size() for t in tensors)


def _machine(device: torch.device) -> dict[str, str]:
    processor = platform.processor() or platform.machine()
    return {"processor": processor, "torch": torch.__version__, "device": device_name(device)}


def _footprints(result: Bench) -> str:
    names = {"macs": "MACs", "parameters": "parameters", "file": "bytes on disk", "memory": "bytes of memory"}
    if result.dense.device_memory is not None and result.slim.device_memory is not None:
        names["device_memory"] = "bytes of device memory"
    pairs = ((name, getattr(result.dense, key), getattr(result.slim, key)) for key, name in names.items())
    rows = [(name, f"{dense:,}", f"{slim:,}", _ratio(dense, slim)) for name, dense, slim in pairs]
    return table(("", "dense", "slim", "less"), rows)


def _timings(result: Bench) -> str:
    rows = []
    dense = [t for t in result.timings if t.network == "dense"]
    for one, other in zip(dense, (t for t in result.timings if t.network == "slim"), strict=True):
        rows.append(
            (
                one.backend,
                one.batch,
                one.threads,
                *(f"{_ms(t.median)} ({_ms(t.low)}-{_ms(t.high)})" for t in (one, other)),
                f"{one.throughput:,.0f}",
                f"{other.throughput:,.0f}",
                _ratio(one.median, other.median),
            )
        )
    heads = ("backend", "batch", "threads", "dense ms", "slim ms", "dense /s", "slim /s", "faster")
    return table(heads, rows) + "\nms: median (middle half of the calls); /s: examples a second"


def _layers(result: Bench) -> str:
    rows = [
        (
            x.name,
            f"{x.theory:.2f}x",
            f"{x.measured:.2f}x",
            f"{x.milliseconds[0]:.3f}",
            f"{x.milliseconds[1]:.3f}",
            f"{x.lost:+.3f}",
        )
        for x in result.layers
    ]
    rest = result.rest
    rows.append(("all else", "", _ratio(*rest), f"{rest[0]:.3f}", f"{rest[1]:.3f}", ""))
    heads = ("layer", "fewer MACs", "faster", "dense ms", "slim ms", "lost ms")
    return (
        table(heads, rows)
        + "\nlost: what the slim layer takes beyond its share of MACs; all else: norms, activations, pools, additions"
    )


def _ms(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _ratio(dense: float, slim: float) -> str:
    return f"{dense / slim:.2f}x" if dense > 0 and slim > 0 else "-"
