"""Values put together: one behind the other along their channels, or side by side along another dimension."""

from typing import Any

import numpy as np
from torch import fx

from ldrf.channels.flow import FIXED, Arriving, Channels, Flow, extents, first, named_dim, unknown, where
from ldrf.channels.tensors import cut_along


def join(flow: Flow, node: fx.Node, arriving: Arriving) -> Channels | None:
    """A concatenation: parts joined along the channels follow each other; along another dimension they are tied."""
    parts: Any = node.args[0]
    rank = node.meta["val"].ndim
    dim = named_dim(node, 1, rank)
    dims = {channels.dim for channels in arriving.values()}
    if len(dims) > 1 or any(part.meta["val"].ndim != rank for part in parts):
        return unknown(flow, node, arriving)
    if dims == {dim}:
        ids = [arriving[p.name].ids if p.name in arriving else np.full(extents(p)[dim], FIXED) for p in parts]
        return Channels(dim, np.concatenate(ids))
    return _side_by_side(flow, node, arriving)


def stack(flow: Flow, node: fx.Node, arriving: Arriving) -> Channels | None:
    """Values side by side along a new dimension: their channels are tied."""
    at = named_dim(node, 1, node.meta["val"].ndim)
    given = _side_by_side(flow, node, arriving)
    return None if given is None else Channels(given.dim + (at <= given.dim), given.ids)


def _side_by_side(flow: Flow, node: fx.Node, arriving: Arriving) -> Channels | None:
    """Channels of all parts are tied; a class token is a tensor of the model, which is cut with them."""
    parts: Any = node.args[0]
    given = first(arriving)
    alike = len({c.dim for c in arriving.values()}) == 1
    if not alike or not all(p.name in arriving or cut_along(flow, p, given.dim, given.ids) for p in parts):
        why = f"its outputs are joined{where(node)} with values that cannot be cut with them"
        for channels in arriving.values():
            flow.freeze(channels.ids, why)
        return None
    for other in arriving.values():
        if (other.ids != given.ids).any():
            flow.summed.append(given.ids)
        flow.tie(given.ids, other.ids, f"its outputs are joined{where(node)} with others that keep their number")
    return given
