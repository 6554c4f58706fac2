"""Recurrent layers: each gate of the first of them reads the channels, so all its weights for inputs are cut."""

import math
from typing import Any

from torch import fx

from ldrf.channels.flow import BATCH, Arriving, Channels, Flow, Slice, extents, first, unknown
from ldrf.tracing.operations import bound_args


def recurrent(flow: Flow, node: fx.Node, arriving: Arriving) -> Channels | None:
    """An LSTM, GRU or RNN as a call: channels end in it, and the layers behind it are what a cut has to restore."""
    args: Any = bound_args(node)
    given, source, params = first(arriving), args["input"], args["params"]
    weights = [p for p in _input_weights(params, args) if p.name in flow.trace.names]
    if source.name not in arriving or len(arriving) > 1 or given.dim != source.meta["val"].ndim - 1 or not weights:
        return unknown(flow, node, arriving)
    flow.slices += [Slice(flow.trace.names[weight.name], 1, given.ids) for weight in weights]
    flow.gated.append((node.name, given.ids))
    steps = math.prod(size for size in extents(source)[:-1] if size != BATCH)
    flow.work.append((float(steps * sum(math.prod(extents(weight)) for weight in weights)), given.ids))
    return None


def _input_weights(params: list[fx.Node], args: dict[str, Any]) -> list[fx.Node]:
    """The weights of the first layer that read the inputs: one, and one more where it runs both ways."""
    each = len(params) // (int(args["num_layers"]) * (2 if args["bidirectional"] else 1))
    return [params[0], params[each]] if args["bidirectional"] else [params[0]]
