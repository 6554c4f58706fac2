"""A traced network with its calibration data: what every stage after tracing starts from."""

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ldrf.calibration import Calibration, split_held_out
from ldrf.config import PruneConfig
from ldrf.errors import LdrfError
from ldrf.inputs import Inputs, chunked
from ldrf.surgery import cut_plainly
from ldrf.targets import Ignore, apply_ignore
from ldrf.tracing import Trace, Weights, folded, trace, working_copy
from ldrf.units import Skipped, Unit, find_units


@dataclass(frozen=True)
class Network:
    """The user's model, its graph, its folded dense weights, its units, and images to calibrate on."""

    model: nn.Module
    trace: Trace
    dense: Weights
    units: tuple[Unit, ...]
    skipped: tuple[Skipped, ...]
    protected: frozenset[str]
    calibration: Calibration

    @property
    def example(self) -> Inputs:
        return self.calibration.chunks[0]


def read_network(model: nn.Module, batches: Iterable[Any], ignore: Ignore, config: PruneConfig) -> Network:
    """Trace ``model`` on the first batch and group its layers into units; the model itself is not touched."""
    copied = working_copy(model)
    chunks = tuple(chunked(copied, batches, config.chunk))
    if not chunks:
        raise LdrfError("The calibration batches must hold at least one batch. Got none: pass unlabelled images.")
    _check_runs(copied, chunks[0])
    graph = trace(copied, chunks[0])
    units, skipped = find_units(graph)
    units, ignored, protected = apply_ignore(model, ignore, units)
    units, stuck = _cuttable(copied, chunks[0], units)
    # Calls of one shared layer are listed once.
    reasons = {s.name: s for s in (*skipped, *ignored, *stuck)}
    calibration = split_held_out(chunks, config.held_out)
    dense = _finite(graph, folded(graph, copied))
    return Network(model, graph, dense, units, tuple(reasons.values()), protected, calibration)


def _finite(graph: Trace, weights: Weights) -> Weights:
    """The same weights, or an error that names the first layer with one that is not a number."""
    for layer in graph.layers:
        if not all(torch.isfinite(t).all() for t in weights.layers[layer.node] if t is not None):
            raise LdrfError(f"The weights of layer '{layer.name}' must be finite. Got NaN or infinite values instead.")
    return weights


def _cuttable(model: nn.Module, chunk: Inputs, units: tuple[Unit, ...]) -> tuple[tuple[Unit, ...], tuple[Skipped, ...]]:
    """Leave out units whose width the model's own code spells out, such as ``x.view(-1, 512)``: try to cut each."""
    few = chunk.map(lambda t: t[:2])
    shapes = _shapes(model, few)
    if _shapes(_without_last(model, units), few) == shapes:
        return units, ()
    stuck = {u.name for u in units if _shapes(_without_last(model, (u,)), few) != shapes}
    skipped = (Skipped(u.name, "the model's forward spells out its width") for u in units if u.name in stuck)
    return tuple(u for u in units if u.name not in stuck), tuple(skipped)


def _without_last(model: nn.Module, units: tuple[Unit, ...]) -> nn.Module:
    """A copy without the last neuron of each unit."""
    copied = copy.deepcopy(model)
    for unit in units:
        cut_plainly(copied, unit, torch.arange(unit.width - 1))
    return copied


@torch.no_grad()
def _shapes(model: nn.Module, chunk: Inputs) -> list[torch.Size] | None:
    """Shapes of the outputs, or None when the model does not run."""
    try:
        return [t.shape for t in tree_leaves(chunk.call(model)) if isinstance(t, Tensor)]
    except Exception:
        return None


def _check_runs(model: nn.Module, chunk: Inputs) -> None:
    """A batch the model cannot take is named before anything else is tried."""
    try:
        with torch.no_grad():
            chunk.call(model)
    except Exception as problem:
        shapes = ", ".join(str(tuple(t.shape)) for t in chunk.tensors())
        first = str(problem).strip().splitlines()[0] if str(problem).strip() else type(problem).__name__
        raise LdrfError(
            f"{type(model).__name__} cannot take a calibration batch of shape {shapes}: {first}"
        ) from problem


def check_prunable(network: Network) -> None:
    """A model in which nothing can be cut is refused, with the first reasons."""
    if not network.units:
        reasons = "; ".join(f"'{s.name}': {s.reason}" for s in network.skipped[:3]) or "it has no conv or linear layer"
        raise LdrfError(f"{type(network.model).__name__} has no prunable layer ({reasons}).")
