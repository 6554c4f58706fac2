"""Dense and slim network walked side by side over the calibration images (Alg. 1, line 12).

Nothing but a frontier of live activations is kept between units, in a store with a byte budget, so every
call of the graph runs a fixed number of times however deep the network is.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, fx

from ldrf.calibration.calibration_set import Calibration
from ldrf.calibration.store import ActivationStore
from ldrf.runtime.allocator import give_back
from ldrf.tracing.interpreter import Weights, run
from ldrf.tracing.lean_run import Values, input_values, read_by
from ldrf.tracing.operations import source_of
from ldrf.tracing.trace import Trace
from ldrf.units.unit import Unit


class Lockstep:
    """Dense and slim network walked side by side, one frontier of live activations each."""

    def __init__(self, trace: Trace, dense: Weights, calibration: Calibration, store: ActivationStore) -> None:
        self.trace, self.dense, self.slim = trace, dense, dense
        self.calibration, self.store = calibration, store
        self.at = 0
        self.diverged = False
        self.whole: dict[str, tuple[Tensor, Tensor | None]] = {}  # layers solved as readers, before they were cut
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
        """Nodes of the layers whose own slim weights are no longer the dense ones; a tied head has none of its own."""
        own = (la.node for la in self.trace.layers if self.trace.called.get(la.weight, 1) == 1)
        return {node for node in own if self.slim.layers[node] is not self.dense.layers[node]}

    def weights(self, net: str) -> Weights:
        return self.dense if net == "dense" else self.slim

    def segment(self, net: str, chunk: int, end: int, weights: Weights | None = None) -> Values:
        """Values of one network from the frontier up to and including position ``end``."""
        nodes = self.trace.nodes[self.at : end + 1]
        return run(self.trace, weights or self.weights(net), nodes, self.frontier(net, chunk))

    @torch.no_grad()
    def advance(self, to: int) -> None:
        """Move both frontiers to graph position ``to``."""
        live = self._live(to)
        for chunk in self.calibration.own():
            give_back(chunk)
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
        return {name for node in later for name in read_by(node)} | set(self.trace.outputs)

    def commit(self, slim: Weights) -> None:
        """Take over new slim weights; from the first change on the slim network has a frontier of its own."""
        if not self.diverged:
            for index in self.calibration.own():
                self._keep("slim", index, self._load("dense", index))
            self.diverged = True
        for node in self.changed:
            if len(slim.layers[node][0]) < len(self.slim.layers[node][0]):
                self.whole[node] = self.slim.layers[node]
        self.slim = slim


def path_between(trace: Trace, unit: Unit) -> tuple[fx.Node, ...]:
    """The calls from the producer's result, and its partners', to the inputs of their consumers, in order.

    Those that look up or move a tensor of the model which is cut with the unit belong to it. What comes out of a
    consumer does not, even where another consumer reads it together with the unit's own.
    """
    span = trace.nodes[unit.start : unit.end + 1]
    made = {layer.result for layer in (unit.producer, *unit.partners)}
    stops = {c.layer.node for c in unit.consumers}
    tensors = {piece.tensor for piece in unit.slices}
    reached, forward, wanted = set(made), [], set[str]()
    for node in span:
        if trace.cut_along.get(node.name) in tensors:
            forward.append(node)
            reached.add(node.name)
        elif any(n in reached for n in read_by(node)):
            if node.name in stops:  # it may be a partner, too: a gate read from the very channels it scales
                wanted.add(source_of(node))
            elif node.name not in made:
                forward.append(node)
                reached.add(node.name)
    path: list[fx.Node] = []
    for node in reversed(forward):
        if node.name in wanted:
            path.append(node)
            wanted |= set(read_by(node))
    return tuple(reversed(path))


def side_inputs(path: Iterable[fx.Node], unit: Unit, trace: Trace) -> set[str]:
    """Values a path reads that are neither its own nor tensors of the model."""
    path = list(path)
    own = {n.name for n in path} | {unit.producer.result, unit.producer.node}
    return {name for node in path for name in read_by(node) if name not in own and name not in trace.names}
