"""A traced network with its calibration data: what every stage after tracing starts from."""

import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, cast

import torch
from torch import nn

from ldrf.calibration.branch_means import droppable_branches
from ldrf.calibration.calibration_set import Calibration, read_calibration
from ldrf.calibration.fixed_batch import graph_takes_any, in_batches_of_graph, in_its_batches
from ldrf.config import PruneConfig, byte_count
from ldrf.errors import LdrfError, LdrfWarning, first_line
from ldrf.files.checksums import fingerprint
from ldrf.inputs import Inputs
from ldrf.runtime.device import (
    CPU,
    Device,
    OutOfMemory,
    device_budget,
    find_device,
    give_back_memory,
    model_device,
)
from ldrf.runtime.processes import check_same, count
from ldrf.runtime.randomness import warn_of_randomness
from ldrf.tracing.counting import count_macs
from ldrf.tracing.export import working_copy
from ldrf.tracing.interpreter import Weights, folded
from ldrf.tracing.trace import Trace, trace
from ldrf.tracing.wrappers import unwrapped
from ldrf.units.branches import Branch
from ldrf.units.targets import Ignore, ignored_modules
from ldrf.units.trial_cuts import usable_units
from ldrf.units.unfollowed import unfollowed_layers
from ldrf.units.unit import Skipped, Unit, left_coupled


@dataclass(frozen=True)
class Whole:
    """The larger model that a network is the parts of: what that costs, and how much more often its parts work in it.

    ``times`` says, by the name of a part, how many times the rows that it is calibrated on it reads there.
    """

    macs: int
    parameters: int
    times: Mapping[str, float]

    def often(self, layer: str) -> float:
        """How many times more often a layer works in the whole."""
        return next((count for part, count in self.times.items() if layer.startswith(f"{part}.") or layer == part), 1.0)


@dataclass(frozen=True)
class Network:
    """The user's model, its graph, its folded dense weights, its units, and images to calibrate on."""

    model: nn.Module
    trace: Trace
    dense: Weights
    units: tuple[Unit, ...]
    coupled: tuple[Unit, ...]  # residual streams, which are cut only where that is asked for or needed
    skipped: tuple[Skipped, ...]
    protected: frozenset[str]
    calibration: Calibration
    device: torch.device = CPU  # where it is run
    branches: tuple[Branch, ...] = ()  # that a plan may leave out, where that is asked for (depth)
    whole: Whole | None = None  # the larger model, of which this network is parts

    def room(self, config: PruneConfig) -> int:
        """Bytes for activations in the memory of the device that the network is run on."""
        if self.device.type != "cpu":
            return device_budget(self.device, cast("int | None", config.device_memory))
        return self.calibration.room(byte_count(config.memory))

    @property
    def home(self) -> torch.device:
        """Where its weights lie: on the device that runs it, or in the host's memory (offload)."""
        return self.dense.home

    @property
    def example(self) -> Inputs:
        return self.calibration.example

    @cached_property
    def macs(self) -> int:
        """MACs of the dense model per example; planning and the result ask for them several times."""
        return count_macs(self.model, self.example)


def read_network(
    model: nn.Module,
    batches: Iterable[Any],
    ignore: Ignore,
    config: PruneConfig,
    shared: bool = False,
    device: Device | None = None,
) -> Network:
    """Trace ``model`` on the first batch and group its layers into units; the model itself is not touched.

    With ``shared`` the images are divided among the processes that work together. The network is run on ``device``, or
    where the model is.
    """
    model = unwrapped(model)
    there = find_device(device, model)
    with _telling_of_room(model, there):
        return _read_network(model, batches, ignore, config, shared, there)


@contextmanager
def _telling_of_room(model: nn.Module, device: torch.device) -> Iterator[None]:
    """A device that has no room for the model itself is told in a sentence."""
    try:
        yield
    except OutOfMemory as problem:
        raise LdrfError(
            f"The device '{device}' has no room for a copy of {type(model).__name__}: keep the weights in the host's "
            f"memory by offload=True, or compute on the CPU. {first_line(problem)}"
        ) from problem


def _read_network(
    model: nn.Module, batches: Iterable[Any], ignore: Ignore, config: PruneConfig, shared: bool, there: torch.device
) -> Network:
    copied = working_copy(model, CPU if config.offload else there)
    calibration = read_calibration(copied, batches, config.chunk, config.held_out, shared)
    if shared:
        check_same(partial(fingerprint, copied.state_dict().items()), "weights")
    _check_alike(calibration.chunks)
    calibration = _that_fits(copied, in_its_batches(copied, calibration, config.held_out))
    warn_of_randomness(copied, calibration.example.to(model_device(copied)))
    calibration, graph, dense = _traced(copied, calibration, config)
    example = calibration.example.to(model_device(copied))
    protected = ignored_modules(model, ignore)
    usable = usable_units(graph, dense, copied, example, protected)
    dense = replace(dense, device=there, precision="float32" if config.precision == "auto" else config.precision)
    units, graph = usable.units, usable.trace
    skipped = (*usable.skipped, *unfollowed_layers(copied, graph, units, usable.skipped))
    inner, coupled = (tuple(u for u in units if u.coupled is kind) for kind in (False, True))
    left = [skip for unit in coupled for skip in left_coupled(unit)]
    reasons = {s.name: s for s in (*skipped, *left)}  # calls of one shared layer are listed once
    branches = droppable_branches(graph, dense, copied, calibration, units, protected) if config.depth else ()
    network = Network(
        model, graph, dense, inner, coupled, tuple(reasons.values()), protected, calibration, there, branches
    )
    return with_coupled(network) if config.coupled or (config.coupled is None and not inner) else network


def _traced(model: nn.Module, calibration: Calibration, config: PruneConfig) -> tuple[Calibration, Trace, Weights]:
    """The graph of the model and its weights; with the images in whole batches, where the graph takes one size only."""
    example = calibration.example.to(model_device(model))
    graph = trace(model, example)
    dense = _finite(graph, folded(graph, model))
    if example.fixed or graph_takes_any(graph, dense, model, example):
        return calibration, graph, dense
    return _traced(model, in_batches_of_graph(model, calibration, config.held_out), config)


def with_coupled(network: Network) -> Network:
    """The same network with its coupled widths among the units."""
    units = sorted((*network.units, *network.coupled), key=lambda u: u.start)
    named = {name for u in network.coupled for name in u.makers}
    skipped = tuple(s for s in network.skipped if s.name not in named)
    return replace(network, units=tuple(units), coupled=(), skipped=skipped)


def _finite(graph: Trace, weights: Weights) -> Weights:
    """The same weights, or an error that names the first layer with one that is not a number."""
    for layer in graph.layers:
        if not all(torch.isfinite(t).all() for t in weights.layers[layer.node] if t is not None):
            raise LdrfError(f"The weights of layer '{layer.name}' must be finite. Got NaN or infinite values instead.")
    return weights


def _check_alike(chunks: tuple[Inputs, ...]) -> None:
    """Images of one size: the network is traced for the sizes of the first batch."""
    first = chunks[0].described()
    for chunk in chunks[1:]:
        if chunk.described() != first:
            sizes = [", ".join(str(list(t.shape[1:])) for t in c.tensors()) for c in (chunks[0], chunk)]
            kinds = [", ".join(str(t.dtype) for t in c.tensors()) for c in (chunks[0], chunk)]
            one, other = sizes if sizes[0] != sizes[1] else kinds
            raise LdrfError(
                f"All calibration batches must have inputs of the same sizes and kinds. Got {one} and {other}: "
                "resize, crop or pad them to one."
            )


def _that_fits(model: nn.Module, calibration: Calibration) -> Calibration:
    """The images in chunks that the model has room to run."""
    while True:
        try:
            _check_runs(model, calibration.example.to(model_device(model)))
            return calibration
        except OutOfMemory as problem:
            reason = first_line(problem)
        calibration = smaller_chunks(calibration, model_device(model), reason)


def smaller_chunks(calibration: Calibration, device: torch.device, reason: str) -> Calibration:
    """The images in half as large chunks after a device ran out of memory; an error where they can't be smaller."""
    most = max(*calibration.sizes, calibration.example.rows)
    why = None
    if most == 1 or count() > 1:
        why = "a single image is too much for it" if most == 1 else "several processes cannot change the chunk"
    elif calibration.example.fixed:
        why = f"the model is traced for batches of {most} only"
    if why is not None:
        raise LdrfError(
            f"The device '{device}' ran out of memory, and {why}: use a smaller chunk= or device_memory=, or "
            f"offload=True. {reason}"
        )
    warnings.warn(
        f"The device '{device}' ran out of memory: going on with fewer images at a time, as the result will say.",
        LdrfWarning,
        stacklevel=2,
    )
    give_back_memory(device)
    return calibration.halved()


def _check_runs(model: nn.Module, chunk: Inputs) -> None:
    """A batch the model cannot take is named before anything else is tried."""
    try:
        with torch.no_grad():
            chunk.call(model)
    except OutOfMemory:
        raise
    except Exception as problem:
        shapes = ", ".join(str(tuple(t.shape)) for t in chunk.tensors())
        first = first_line(problem)
        raise LdrfError(
            f"{type(model).__name__} cannot take a calibration batch of shape {shapes}: {first}"
        ) from problem


def check_prunable(network: Network) -> None:
    """A model in which nothing can be cut is refused, with the first reasons."""
    if not network.units:
        reasons = "; ".join(f"'{s.name}': {s.reason}" for s in network.skipped[:3]) or "it has no conv or linear layer"
        raise LdrfError(f"{type(network.model).__name__} has no prunable layer ({reasons}).")
