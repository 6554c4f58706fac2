"""Calibration data run through the dense network once, then through dense and slim in lockstep (Alg. 1, l. 12).

Nothing but a frontier of live activations is kept between units, in a store with a byte budget, so every
call of the graph runs a fixed number of times however deep the network is.
"""

import math
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from ldrf.allocator import give_back
from ldrf.chunks import Calibration
from ldrf.errors import LdrfError, LdrfWarning
from ldrf.inputs import Inputs
from ldrf.interpreter import Weights, run
from ldrf.narrowing import CHANNEL_DIM
from ldrf.processes import sum_over
from ldrf.rows import Moments, RowSums, count_rows, input_moments, input_rows, sample_positions
from ldrf.store import ActivationStore
from ldrf.tracing import TENSOR_VIEWS, Layer, Trace, operation, source_of
from ldrf.units import Unit

Values = dict[str, Any]
LARGEST = 1e15  # of an activation: a hundred million squares of it still have a sum in float32


@dataclass
class Survey:
    """What one dense pass says of a unit: a Gram matrix per consumer, share of zeros and mean size per neuron."""

    moments: list[Moments]
    zeros: Tensor  # [n], APoZ
    activity: Tensor  # [n], mean absolute value


def input_values(trace: Trace, chunk: Inputs) -> Values:
    """The graph's input placeholders bound to one chunk."""
    given = [*chunk.args, *chunk.kwargs.values()]
    return dict(zip(trace.inputs, given, strict=False))


@torch.no_grad()
def survey(
    trace: Trace, weights: Weights, units: tuple[Unit, ...], calibration: Calibration, seed: int, progress: Any
) -> dict[str, Survey]:
    """Run the dense network over the fitting chunks and sum up every unit's consumer inputs."""
    shared: dict[str, RowSums] = {}
    sums = {u.name: torch.zeros(3, u.width, dtype=torch.float64) for u in units}
    last = _last_uses(trace)
    fitting = set(calibration.fitting)
    for index in progress(calibration.own(), "survey"):
        values = input_values(trace, calibration.chunks[index])
        for position, node in enumerate(trace.nodes):
            with telling_images(calibration, index):
                run(trace, weights, (node,), values)
            check_finite(trace, node, values)
            readers = list(_readers(units, node.name)) if index in fitting else []
            if readers:
                layer, x = readers[0][0].consumers[readers[0][1]].layer, values[source_of(node)]
                rows = input_rows(layer, x, sampled(layer, x, calibration, index, _columns(layer), seed))
                # Units whose maps are joined have a reader in common, and with it one Gram matrix.
                if node.name not in shared:
                    shared[node.name] = RowSums(rows.shape[1])
                shared[node.name].add(rows)
                for unit, c in readers:
                    _note_neurons(sums[unit.name], unit, c, rows)
            for name in last.get(position, ()):
                values.pop(name, None)
    found = _over_processes(units, input_moments(shared), sums)
    _warn_of_few_rows(units, found, calibration.examples)
    return found


def _over_processes(units: tuple[Unit, ...], moments: dict[str, Moments], sums: dict[str, Tensor]) -> dict[str, Survey]:
    """What all processes saw: moments by node of the reader, sums [zeros, sizes, values seen] by unit."""
    found = {}
    for unit in units:
        zeros, sizes, seen = sum_over(sums[unit.name])
        seen = seen.clamp_min(1)
        found[unit.name] = Survey([moments[c.layer.node] for c in unit.consumers], zeros / seen, sizes / seen)
    return found


def _warn_of_few_rows(units: tuple[Unit, ...], found: dict[str, Survey], examples: int) -> None:
    """Say once where calibration data cannot determine a layer: its least squares is damped and goes on."""
    short = [
        (c.layer.name, m.rows, len(m.gram) - 1)
        for u in units
        for c, m in zip(u.consumers, found[u.name].moments, strict=True)
        if m.rows < len(m.gram) - 1
    ]
    if short:
        name, rows, columns = max(short, key=lambda s: s[2] / s[1])
        others = f" (and {len(short) - 1} more)" if len(short) > 1 else ""
        warnings.warn(
            f"{examples} calibration images give {rows} rows for the {columns} weights per output of layer "
            f"'{name}'{others}: least squares is damped there; more images would serve it better.",
            LdrfWarning,
            stacklevel=3,
        )


def layer_inputs(
    trace: Trace, weights: Weights, calibration: Calibration, seed: int, progress: Any
) -> dict[str, Moments]:
    """Gram matrix of every layer's input rows over the fitting chunks, by layer node."""
    layers = {layer.node: layer for layer in trace.layers if layer.groups == 1}
    found: dict[str, RowSums] = {}
    with torch.no_grad():
        for index in progress(calibration.own(calibration.fitting), "layers"):
            with telling_images(calibration, index):
                values = run(trace, weights, trace.nodes, input_values(trace, calibration.chunks[index]))
            for node, layer in layers.items():
                check_finite(trace, trace.node(node), values)
                x = values[source_of(trace.node(node))]
                rows = input_rows(layer, x, sampled(layer, x, calibration, index, 0, seed))
                if node not in found:
                    found[node] = RowSums(rows.shape[1])
                found[node].add(rows)
    return input_moments(found)


def _readers(units: tuple[Unit, ...], node: str) -> Iterator[tuple[Unit, int]]:
    for unit in units:
        for i, consumer in enumerate(unit.consumers):
            if consumer.layer.node == node:
                yield unit, i


def sampled(layer: Layer, x: Tensor, calibration: Calibration, chunk: int, columns: int, seed: int) -> Tensor | None:
    """Which rows of a layer's input ``x`` in a chunk to use: each image gives its share of those wanted."""
    limit = max(rows_wanted(columns) // calibration.examples, 1)
    return sample_positions(count_rows(layer, x), calibration.images(chunk), limit, seed)


def _note_neurons(sums: Tensor, unit: Unit, index: int, rows: Tensor) -> None:
    """Add what a consumer's input rows say of each neuron that it is the first to read.

    Sums [zeros, sizes, values seen]: counts are exact, so equal neurons stay equal whatever is added first.
    """
    channels = torch.as_tensor(unit.consumers[index].channels)
    seen = [torch.as_tensor(c.channels) for c in unit.consumers[:index]]
    own = ((channels >= 0) & ~torch.isin(channels, torch.cat(seen or [channels[:0]]))).nonzero().flatten()
    per_neuron, owner = rows.view(len(rows), len(channels), -1), channels[own]
    per_neuron = per_neuron if len(own) == len(channels) else per_neuron[:, own]
    seen = torch.full((len(owner),), float(len(rows) * per_neuron.shape[2]))
    zeros = (per_neuron <= 0).float().sum(0).double().sum(1)  # float32 counts rows as exactly as whole numbers, faster
    noted = [zeros, per_neuron.abs().sum((0, 2), dtype=torch.float64), seen]
    sums.index_add_(1, owner, torch.stack([part.double() for part in noted]))


def _columns(layer: Layer) -> int:
    return layer.inputs * math.prod(layer.kernel)


def rows_wanted(columns: int) -> int:
    """How many rows a problem with this many columns is solved on: well above the columns, bounded below."""
    return max(16 * columns, 60_000)


def check_finite(trace: Trace, node: fx.Node, values: Values) -> None:
    """Stop with the layer's name when an activation is not a number, or too large for sums of squares in float32."""
    layer = next((la for la in trace.layers if la.node == node.name), None)
    if layer is None:
        return
    largest = float(values[node.name].abs().max()) if values[node.name].numel() else 0.0
    if not math.isfinite(largest):
        raise LdrfError(
            f"The activations of layer '{layer.name}' must be finite, but NaN or infinite values came out of it: "
            "look at its weights and at the calibration images."
        )
    if largest > LARGEST:
        raise LdrfError(
            f"The activations of layer '{layer.name}' must stay below {LARGEST:g}, as their squares are summed. "
            f"Got {largest:.2g} instead: look at its weights and at the calibration images."
        )


@contextmanager
def telling_images(calibration: Calibration, index: int) -> Iterator[None]:
    """An error of torch within says in one sentence which images the network cannot take."""
    try:
        yield
    except (RuntimeError, IndexError, ValueError, TypeError) as problem:
        images = calibration.images(index)
        told = str(problem).strip().splitlines()[0] if str(problem).strip() else type(problem).__name__
        which = f"{images.start + 1} to {images.stop}"
        raise LdrfError(f"The network cannot take calibration images {which}: {told}.") from problem


def run_lean(trace: Trace, weights: Weights, start: int, stop: int, values: Values) -> Values:
    """Run a stretch of the graph, letting go of every value nobody needs afterwards."""
    last = _last_uses(trace)
    for position in range(start, stop):
        run(trace, weights, (trace.nodes[position],), values)
        for name in last.get(position, ()):
            values.pop(name, None)
    return values


def _last_uses(trace: Trace) -> dict[int, list[str]]:
    """Graph position -> names whose value nobody needs after it."""
    last: dict[str, int] = {}
    for position, node in enumerate(trace.nodes):
        for used in _read(node):
            last[used] = position
    gone: dict[int, list[str]] = {}
    for name, position in last.items():
        if name not in trace.outputs:
            gone.setdefault(position, []).append(name)
    return gone


def _read(node: fx.Node) -> list[str]:
    """Names a node reads; the getitem behind a folded norm reads the layer itself."""
    names = [n.name for n in node.all_input_nodes]
    deeper = [n.name for user in node.all_input_nodes for n in user.all_input_nodes if len(user.users) == 1]
    return names + (deeper if str(node.target).startswith("<built-in function getitem") else [])


class Lockstep:
    """Dense and slim network walked side by side, one frontier of live activations each."""

    def __init__(self, trace: Trace, dense: Weights, calibration: Calibration, store: ActivationStore) -> None:
        self.trace, self.dense, self.slim = trace, dense, dense
        self.calibration, self.store = calibration, store
        self.at = 0
        self.diverged = False
        self.small: dict[tuple[str, int], Values] = {}
        for index in calibration.own():
            self._keep("dense", index, input_values(trace, calibration.chunks[index]))

    def _keep(self, net: str, chunk: int, values: Values) -> None:
        self.small[net, chunk] = {k: v for k, v in values.items() if not isinstance(v, Tensor)}
        for name, value in values.items():
            if isinstance(value, Tensor):
                self.store.put((net, chunk, name), value)

    def _load(self, net: str, chunk: int) -> Values:
        values = dict(self.small[net, chunk])
        for key in self._keys(net, chunk):
            values[key[2]] = self.store.get(key)
        return values

    def _keys(self, net: str, chunk: int) -> list[Any]:
        return [k for k in self.store if len(k) == 3 and k[0] == net and k[1] == chunk]

    def frontier(self, net: str, chunk: int) -> Values:
        """Live values of one network before graph position ``at``."""
        return self._load(net if self.diverged else "dense", chunk)

    @property
    def changed(self) -> set[str]:
        """Nodes of the layers whose slim weights are no longer the dense ones."""
        return {node for node, pair in self.slim.layers.items() if pair is not self.dense.layers[node]}

    def weights(self, net: str) -> Weights:
        return self.dense if net == "dense" else self.slim

    def segment(self, net: str, chunk: int, end: int, weights: Weights | None = None) -> Values:
        """Values of one network from the frontier up to and including position ``end``."""
        nodes = self.trace.nodes[self.at : end + 1]
        return run(self.trace, weights or self.weights(net), nodes, self.frontier(net, chunk))

    @torch.no_grad()
    def advance(self, to: int) -> None:
        """Move both frontiers to graph position ``to``."""
        give_back()
        live = self._live(to)
        for chunk in self.calibration.own():
            for net in ("dense", "slim") if self.diverged else ("dense",):
                values = run(self.trace, self.weights(net), self.trace.nodes[self.at : to], self._load(net, chunk))
                for key in self._keys(net, chunk):
                    if key[2] not in live:
                        self.store.drop(key)
                held = {k[2] for k in self._keys(net, chunk)}
                fresh = {k: v for k, v in values.items() if k in live and k not in held}
                kept_small = {k: v for k, v in self.small[net, chunk].items() if k in live}
                self._keep(net, chunk, fresh)
                self.small[net, chunk] = {**kept_small, **self.small[net, chunk]}
        self.at = to

    def _live(self, position: int) -> set[str]:
        later = self.trace.nodes[position:]
        return {name for node in later for name in _read(node)} | set(self.trace.outputs)

    def commit(self, slim: Weights) -> None:
        """Take over new slim weights; from the first change on the slim network has a frontier of its own."""
        if not self.diverged:
            for index in self.calibration.own():
                self._keep("slim", index, self._load("dense", index))
            self.diverged = True
        self.slim = slim


def path_between(trace: Trace, unit: Unit) -> tuple[fx.Node, ...]:
    """The calls from the producer's result, and its partners', to the inputs of their consumers, in order.

    What comes out of a consumer is no part of it, even where another consumer reads it together with the unit's own.
    """
    span = trace.nodes[unit.start : unit.end + 1]
    made = {layer.result for layer in (unit.producer, *unit.partners)}
    stops = {c.layer.node for c in unit.consumers}
    reached, forward, wanted = set(made), [], set[str]()
    for node in span:
        if any(n in reached for n in _read(node)):
            if node.name in stops:  # it may be a partner, too: a gate read from the very channels it scales
                wanted.add(source_of(node))
            elif node.name not in made:
                forward.append(node)
                reached.add(node.name)
    path: list[fx.Node] = []
    for node in reversed(forward):
        if node.name in wanted:
            path.append(node)
            wanted |= set(_read(node))
    for node in reversed(span):
        if node.name in wanted and _is_cut_along(trace, node):
            path.append(node)
            wanted |= set(_read(node))
    return tuple(sorted(path, key=lambda node: trace.index(node.name)))


def _is_cut_along(trace: Trace, node: fx.Node) -> bool:
    """Whether a call only reshapes a tensor of the model that is cut with the channels it meets."""
    inner = [n for n in node.all_input_nodes if n.name not in trace.names]
    return operation(node) in TENSOR_VIEWS and CHANNEL_DIM in node.meta and all(_is_cut_along(trace, n) for n in inner)


def side_inputs(path: Iterable[fx.Node], unit: Unit, trace: Trace) -> set[str]:
    """Values a path reads that are neither its own nor tensors of the model."""
    path = list(path)
    own = {n.name for n in path} | {unit.producer.result, unit.producer.node}
    return {name for node in path for name in _read(node) if name not in own and name not in trace.names}
