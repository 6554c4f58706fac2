"""What is cut together: a producing layer, everything its channels pass through, and the layers that read them."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from ldrf.channel_flow import ACTIVATIONS, Flow, Slice, follow_channels, layer_tensors
from ldrf.tracing import Layer, Trace, operation


@dataclass(frozen=True)
class Consumer:
    """A layer that reads a unit's channels; ``channels[i]`` is the neuron behind its i-th input."""

    layer: Layer
    channels: np.ndarray
    other: str | None  # the value its output is added to, where it closes a residual branch
    sum: str | None  # and the node of that sum
    activation: str | None  # the activation that alone reads the result

    @property
    def goal(self) -> str:
        """The node whose dense value the consumer is to restore: its own result, or the sum it goes into."""
        return self.sum or self.layer.result


@dataclass(frozen=True)
class Unit:
    """``width`` neurons of ``producer`` that can be cut, with all tensors that shrink along."""

    name: str
    width: int
    producer: Layer
    consumers: tuple[Consumer, ...]
    slices: tuple[Slice, ...]  # carriers' tensors; their ids are neuron indices of this unit
    start: int  # graph position of the producer
    end: int  # graph position of the last call its reconstruction looks at

    @property
    def layers(self) -> tuple[str, ...]:
        return (self.producer.name, *(c.layer.name for c in self.consumers))


@dataclass(frozen=True)
class Skipped:
    """A layer that keeps its width, and why."""

    name: str
    reason: str


def find_units(trace: Trace) -> tuple[tuple[Unit, ...], tuple[Skipped, ...]]:
    """Group the layers of a traced network into units; whatever is not understood is skipped with a reason."""
    flow = follow_channels(trace)
    frozen = {flow.root(int(i)): reason for ids, reason in reversed(flow.frozen) for i in ids}
    owners: dict[int, list[str]] = defaultdict(list)
    for node, ids in flow.produced.items():
        for root in {flow.root(int(i)) for i in ids}:
            owners[root].append(node)
    by_node = {layer.node: layer for layer in trace.layers}
    order = {node.name: i for i, node in enumerate(trace.nodes)}
    units, skipped = [], []
    for node, ids in flow.produced.items():
        layer = by_node[node]
        reason = _reason(trace, flow, layer, ids, frozen, owners, by_node)
        unit = None if reason else _unit(trace, flow, layer, ids, order)
        if unit is None:
            skipped.append(Skipped(layer.name, reason or "no layer reads its outputs"))
        else:
            units.append(unit)
    return tuple(sorted(units, key=lambda u: u.start)), tuple(skipped)


def _reason(
    trace: Trace,
    flow: Flow,
    layer: Layer,
    ids: np.ndarray,
    frozen: dict[int, str],
    owners: dict[int, list[str]],
    by_node: dict[str, Layer],
) -> str | None:
    """Why this layer's outputs must keep their number, or None."""
    roots = [flow.root(int(i)) for i in ids]
    for root in roots:
        others = [by_node[n].name for n in owners[root] if n != layer.node]
        if others:
            return f"its outputs are added to or multiplied with those of '{others[0]}', so their widths are tied"
    shared = _shared(trace, layer_tensors(layer))
    if shared:
        return f"its tensor '{shared}' is used by more than one call"
    stopped = next((frozen[root] for root in roots if root in frozen), None)
    if stopped:
        return stopped
    readers = [reader for reader, read in flow.consumed if np.isin(read, ids).any()]
    for reader in readers:
        if _shared(trace, layer_tensors(reader)):
            return f"'{reader.name}', which reads its outputs, is called more than once or shares its weights"
    shared = _shared(trace, [piece.tensor for piece in flow.slices if np.isin(piece.ids, ids).any()])
    if shared:
        return f"its outputs meet the tensor '{shared}', which is used by more than one call"
    if len(set(roots)) < len(roots):
        return "some of its outputs are tied to each other"
    if layer.outputs < 2:
        return "it has a single output"
    return None


def _shared(trace: Trace, tensors: list[str]) -> str | None:
    """The first of these tensors that more than one call uses."""
    return next((name for name in tensors if trace.called.get(name, 1) > 1), None)


def _unit(trace: Trace, flow: Flow, layer: Layer, ids: np.ndarray, order: dict[str, int]) -> Unit | None:
    neuron = {flow.root(int(i)): n for n, i in enumerate(ids)}
    local = lambda found: np.array([neuron.get(flow.root(int(i)), -1) for i in found])  # noqa: E731
    consumers, end = [], order[layer.result]
    for reader, read in flow.consumed:
        channels = local(read)
        if (channels < 0).all():
            continue
        other, summed = _residual(trace, reader)
        activation = activation_behind(trace, summed or reader.result)
        consumers.append(Consumer(reader, channels, other, summed, activation))
        end = max(end, order[summed or reader.result])
    slices = [Slice(s.tensor, s.dim, local(s.ids)) for s in flow.slices]
    slices = [s for s in slices if (s.ids >= 0).all()]
    if not consumers:
        return None
    return Unit(layer.name, layer.outputs, layer, tuple(consumers), tuple(slices), order[layer.node], end)


def _residual(trace: Trace, layer: Layer) -> tuple[str | None, str | None]:
    """The other operand and the node of the sum that alone reads ``layer``'s output, if it closes a branch."""
    result = next(n for n in trace.nodes if n.name == layer.result)
    users = list(result.users)
    if len(users) != 1 or str(users[0].target) != "aten.add.Tensor" or len(users[0].args) != 2:
        return None, None
    others = [a for a in users[0].args if a is not result]
    if len(others) != 1 or not hasattr(others[0], "meta") or others[0].op == "placeholder":  # pyright: ignore
        return None, None
    if others[0].meta["val"].shape != result.meta["val"].shape:  # pyright: ignore
        return None, None
    return others[0].name, users[0].name  # pyright: ignore


def activation_behind(trace: Trace, name: str) -> str | None:
    """The activation that alone reads the value ``name``, if there is one."""
    users = list(next(n for n in trace.nodes if n.name == name).users)
    if len(users) == 1 and operation(users[0]) in ACTIVATIONS and len(users[0].all_input_nodes) == 1:
        return users[0].name
    return None
