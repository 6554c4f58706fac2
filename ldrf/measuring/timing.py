"""Time several calls in turns, so that a busy moment of the machine meets them all; and every layer on its own."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.benchmark import Measurement, Timer

from ldrf.inputs import Inputs
from ldrf.runtime.device import CPU, model_device, synchronise
from ldrf.runtime.progress import progress

Networks = dict[str, nn.Module]  # "dense" and "slim"
ROUNDS = 3
LAYERS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)


@dataclass(frozen=True)
class LayerTiming:
    """One conv or linear layer alone, on its own real input: MACs an example and milliseconds, dense and slim."""

    name: str
    macs: tuple[int, int]
    milliseconds: tuple[float, float]

    @property
    def theory(self) -> float:
        return self.macs[0] / max(self.macs[1], 1)

    @property
    def measured(self) -> float:
        return self.milliseconds[0] / self.milliseconds[1]

    @property
    def lost(self) -> float:
        """Milliseconds the slim layer takes beyond what its MACs promise."""
        return self.milliseconds[1] - self.milliseconds[0] / self.theory


def take_turns(
    calls: dict[str, Callable[[], Any]], threads: int, seconds: float, device: torch.device = CPU
) -> dict[str, Measurement]:
    """Measure each call for ``seconds`` in all, a share at a time, in turns; the device they run on is waited for."""
    parts: dict[str, list[Measurement]] = {name: [] for name in calls}
    with torch.inference_mode():
        for _ in range(ROUNDS):
            for name, call in calls.items():
                timer = Timer("call()", globals={"call": call}, num_threads=threads, timer=clock_of(device))
                parts[name].append(timer.blocked_autorange(min_run_time=seconds / ROUNDS))
    return {name: _merged(rounds) for name, rounds in parts.items()}


def clock_of(device: torch.device) -> Callable[[], float]:
    """A clock that is read when the device has done what it was given."""

    def read() -> float:
        synchronise(device)
        return time.perf_counter()

    return read


def _merged(parts: list[Measurement]) -> Measurement:
    """All rounds as one: each block's time per call, whatever the round's block size was."""
    times = [time / part.number_per_run for part in parts for time in part.raw_times]
    return Measurement(number_per_run=1, raw_times=times, task_spec=parts[0].task_spec)


def time_layers(networks: Networks, inputs: Inputs, threads: int, seconds: float) -> tuple[LayerTiming, ...]:
    """Every conv and linear layer that both networks have, on the input it gets in its own network."""
    seen = {name: _layer_calls(network, inputs) for name, network in networks.items()}
    names = [name for name in seen["dense"] if name in seen["slim"]]
    timings = []
    for name in progress(names, "layers"):
        calls = {n: _bound(network.get_submodule(name), seen[n][name].input) for n, network in networks.items()}
        times = take_turns(calls, threads, seconds, inputs.tensors()[0].device)
        dense, slim = ((seen[n][name], times[n].median * 1000) for n in ("dense", "slim"))
        macs = dense[0].macs // inputs.rows, slim[0].macs // inputs.rows
        timings.append(LayerTiming(name, macs, (dense[1] * dense[0].calls, slim[1] * slim[0].calls)))
    return tuple(timings)


def _bound(layer: nn.Module, given: Tensor) -> Callable[[], Any]:
    return lambda: layer(given)


@dataclass(frozen=True)
class _Seen:
    """A layer's input at its last call, the MACs of all its calls together, and their number."""

    input: Tensor
    macs: int
    calls: int


def _layer_calls(network: nn.Module, inputs: Inputs) -> dict[str, _Seen]:
    """What every layer gets in one call of the network."""
    seen: dict[str, _Seen] = {}
    with torch.inference_mode(), _watched(network, seen):
        inputs.call(network)
    return seen


@contextmanager
def _watched(network: nn.Module, seen: dict[str, _Seen]) -> Iterator[None]:
    def watch(name: str):
        def note(layer: Any, given: tuple[Any, ...], output: Tensor) -> None:
            before = seen.get(name, _Seen(given[0], 0, 0))
            macs = output.numel() * layer.weight.shape[1:].numel()  # every output value costs one row of the weight
            seen[name] = _Seen(given[0], before.macs + macs, before.calls + 1)

        return note

    layers = [(name, module) for name, module in network.named_modules() if isinstance(module, LAYERS)]
    handles = [module.register_forward_hook(watch(name)) for name, module in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def latency_ratio(dense: nn.Module, slim: nn.Module, example: Inputs, seconds: float = 1.0) -> dict[str, float]:
    """Median milliseconds of one call of each network on the same inputs, measured in turns on the networks' device."""
    device = model_device(dense)
    example = example.to(device)
    times: dict[str, list[float]] = {"dense": [], "slim": []}
    with torch.inference_mode():
        for _ in range(3):
            for name, model in (("dense", dense), ("slim", slim)):
                given = {"call": example.call, "model": model}
                timer = Timer("call(model)", globals=given, num_threads=torch.get_num_threads(), timer=clock_of(device))
                times[name].append(timer.blocked_autorange(min_run_time=seconds / 3).median * 1000)
    return {name: sorted(medians)[len(medians) // 2] for name, medians in times.items()}
