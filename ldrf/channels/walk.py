"""How channels travel through a graph: one walk over its calls, with the rule of each operator.

Every layer's outputs get fresh ids. A layer that mixes all its inputs consumes the ids it reads; one that works in
groups carries them on, whole groups at a time.
"""

from collections.abc import Mapping

import numpy as np
from torch import Tensor, fx

from ldrf.channels.flow import FIXED, Channels, Flow, Slice
from ldrf.channels.operators import rule_of
from ldrf.channels.tensors import EMBEDDING, embedded, is_tied
from ldrf.tracing.operations import NORM, operation, source_of
from ldrf.tracing.trace import Layer, Trace

__all__ = ["FIXED", "Channels", "Flow", "Slice", "follow_channels", "layer_tensors"]


def follow_channels(trace: Trace, outer: Mapping[str, int] | None = None, packed: bool = False) -> Flow:
    """Walk the graph once, linear in its size, and record where every layer's channels go.

    ``outer`` says, of views that split channels over several dimensions, which of these is to shrink if not the last.
    With ``packed`` queries, keys and values of one layer may lose width together.
    """
    flow = Flow(trace, outer or {}, packed)
    layers = {layer.node: layer for layer in trace.layers}
    norms = {layer.norm.node: layer for layer in trace.layers if layer.norm}
    for node in trace.nodes:
        arriving = {n.name: flow.values[n.name] for n in node.all_input_nodes if n.name in flow.values}
        if node.name in layers:
            result = _layer_rule(flow, layers[node.name], node, arriving)
        elif node.name in norms:
            result = flow.values.get(norms[node.name].node)
        elif operation(node) == EMBEDDING and not arriving:
            result = embedded(flow, node)
        elif not arriving or (operation(node) == NORM and any(u.name in norms for u in node.users)):
            continue
        elif isinstance(node.meta.get("val"), Tensor | list | tuple):
            result = rule_of(node)(flow, node, arriving)
            flow.note_dims(node, arriving, result)
        else:
            continue  # a size or a check: no channels in it
        if result is not None:
            flow.values[node.name] = result
    for name in trace.outputs:
        if name in flow.values:
            flow.freeze(flow.values[name].ids, "it is an output of the model")
    return flow


def _layer_rule(flow: Flow, layer: Layer, node: fx.Node, arriving: dict[str, Channels]) -> Channels | None:
    given = arriving.get(source_of(node))
    dim = node.meta["val"].ndim - 1 if layer.is_linear else 1
    if given is not None and given.dim != dim:
        flow.freeze(given.ids, f"'{layer.name}' reads its outputs along another dimension")
        given = None
    if layer.groups > 1 and given is not None:
        return _carried(flow, layer, given)
    if given is not None and is_tied(flow, layer):
        flow.slices.append(Slice(layer.weight, 1 - layer.row_dim, given.ids))
    elif given is not None:
        flow.consumed.append((layer, given.ids))
    ids = flow.fresh(layer.outputs)
    flow.produced[layer.node] = ids
    if layer.groups > 1:
        kind = "depthwise" if layer.is_depthwise else "grouped"
        flow.freeze(ids, f"it is a {kind} convolution, and the channels it reads keep their number")
    return Channels(dim, ids) if layer.outputs > 1 else None


def _carried(flow: Flow, layer: Layer, given: Channels) -> Channels:
    """Through a grouped convolution: a neuron is all that goes into one group and all that comes out of it."""
    table = given.ids.reshape(layer.groups, -1)
    flow.tie(table, table[:, :1], f"'{layer.name}' reads its outputs in groups with others that keep their number")
    ids = np.repeat(table[:, 0], layer.outputs // layer.groups)
    flow.slices += [Slice(name, 0, ids) for name in layer_tensors(layer)]
    return Channels(given.dim, ids)


def layer_tensors(layer: Layer) -> list[str]:
    """Names of the tensors of a layer and of the norm folded into it."""
    norm = layer.norm
    names = [layer.weight, layer.bias, *((norm.weight, norm.bias, norm.mean, norm.var) if norm else ())]
    return [name for name in names if name]
