"""Dense and slim network walked side by side over the calibration images (Alg. 1, line 12).

Between units only a frontier of live activations is kept, in a store with a byte budget. So every call of the graph
runs a fixed number of times, however deep the network is.
"""

from collections.abc import Collection, Iterable

import torch
from torch import Tensor, fx

from ldrf.calibration.calibration_set import Calibration
from ldrf.calibration.store import ActivationStore, Key, Owner
from ldrf.runtime.allocator import give_back
from ldrf.tracing.interpreter import Weights, run
from ldrf.tracing.lean_run import Values, input_values, needed_for
from ldrf.tracing.operations import read_by, source_of
from ldrf.tracing.trace import Trace
from ldrf.units.branches import Branch, without
from ldrf.units.unit import Unit


class Lockstep:
    """Dense and slim network walked side by side, one frontier of live activations each."""

    def __init__(self, trace: Trace, dense: Weights, calibration: Calibration, store: ActivationStore) -> None:
        self.trace, self.dense, self.slim = trace, dense, dense
        self.calibration, self.store = calibration, store
        self.at = 0
        self.diverged = False
        # Weight and bias of layers that were solved as consumers, as they were before their own outputs were solved.
        self.full_width: dict[str, tuple[Tensor, Tensor | None]] = {}
        self.small: dict[tuple[Owner, int], Values] = {}  # values that are no tensors
        for index in calibration.own():
            self._keep("dense", index, input_values(trace, calibration.chunks[index], dense.device))

    def _keep(self, net: Owner, chunk: int, values: Values) -> None:
        self.small[net, chunk] = {k: v for k, v in values.items() if not isinstance(v, Tensor)}
        for name, value in values.items():
            if isinstance(value, Tensor):
                self.store.put(Key(net, chunk, "value", name), value)

    def _load(self, net: Owner, chunk: int) -> Values:
        """What :meth:`_keep` stored."""
        stored = {name: self.store.get(key) for name, key in self.store.keys(net, chunk, "value").items()}
        return {**self.small[net, chunk], **stored}

    def frontier(self, net: Owner, chunk: int) -> Values:
        """Live values of one network before graph position ``at``."""
        return self._load(net if self.diverged else "dense", chunk)

    @property
    def changed(self) -> set[str]:
        """Nodes of the layers whose own slim weights are no longer the dense ones; a tied head has none of its own."""
        own = (la.node for la in self.trace.layers if self.trace.called.get(la.weight, 1) == 1)
        own = (node for node in own if node not in self.slim.idle)
        return {node for node in own if self.slim.layers[node] is not self.dense.layers[node]}

    def weights(self, net: Owner) -> Weights:
        """The weights of one network as they are now."""
        return self.dense if net == "dense" else self.slim

    def segment(self, net: Owner, chunk: int, end: int, weights: Weights | None = None) -> Values:
        """Values of one network from the frontier up to and including position ``end``."""
        nodes = self.trace.nodes[self.at : end + 1]
        return run(self.trace, weights or self.weights(net), nodes, self.frontier(net, chunk))

    @torch.no_grad()
    def advance(self, to: int) -> None:
        """Move both frontiers to graph position ``to``."""
        live = self._live(to)
        for chunk in self.store.in_turn(self.calibration.own(), "dense", "slim"):
            give_back(chunk)
            self._replace("dense", chunk, self._dense_at(to, chunk, live))
            if self.diverged:
                values = run(self.trace, self.slim, self.trace.nodes[self.at : to], self._load("slim", chunk))
                self._replace("slim", chunk, {name: value for name, value in values.items() if name in live})
        self.at = to

    def keep_ahead(self, chunk: int, name: str, value: Tensor) -> None:
        """Keep a dense value beyond the frontier where there is room, as the walk will come by it."""
        self.store.put_if_roomy(Key("dense", chunk, "ahead", name), value)

    def _dense_at(self, to: int, chunk: int, live: set[str]) -> Values:
        """Dense values that are live at graph position ``to``; what was computed ahead is not computed again."""
        passed = [(n, k) for n, k in self.store.keys("dense", chunk, "ahead").items() if self.trace.index(n) < to]
        values = {**self._load("dense", chunk), **{name: self.store.get(key) for name, key in passed}}
        for _, key in passed:
            self.store.drop(key)
        run(self.trace, self.dense, needed_for(self.trace.nodes[self.at : to], live, values), values)
        return {name: value for name, value in values.items() if name in live}

    def _replace(self, net: Owner, chunk: int, values: Values) -> None:
        """Store ``values`` instead of those that were there; what stays is not written again."""
        stored = self.store.keys(net, chunk, "value")
        for name, key in stored.items():
            if name not in values:
                self.store.drop(key)
        self._keep(net, chunk, {name: value for name, value in values.items() if name not in stored})

    def _live(self, position: int) -> set[str]:
        """Names of values that are read from this position on, or are outputs."""
        later = self.trace.nodes[position:]
        return {name for node in later for name in read_by(node)} | set(self.trace.outputs)

    def leave_out(self, branches: Iterable[Branch], unit: Unit) -> None:
        """Leave those of the branches out of the slim network that the unit's reconstruction reaches."""
        due = [b for b in branches if b.end not in self.slim.constants and self.trace.index(b.end) <= unit.end]
        if due:
            self.advance(unit.start)
            self.commit(without(self.slim, due))

    def commit(self, slim: Weights, producers: Collection[str] = ()) -> None:
        """Take over new slim weights; from the first change on the slim network has a frontier of its own.

        The outputs of ``producers`` are neurons from now on, which need not be those of the dense network any more,
        even if there are as many.
        """
        if not self.diverged:
            for index in self.calibration.own():
                self._keep("slim", index, self._load("dense", index))
            self.diverged = True
        for node in self.changed:
            if node in producers or len(slim.layers[node][0]) < len(self.slim.layers[node][0]):
                self.full_width[node] = self.slim.layers[node]
        self.slim = self._placed(slim)

    def _placed(self, slim: Weights) -> Weights:
        """The new slim weights; new layers lie where the dense ones do, which is not always where they are used."""
        home = self.dense.home
        return slim if home == slim.device else slim.placed(home)


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
