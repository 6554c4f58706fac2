"""What operators do to channels that stay where they are: functions of single values, sums, pools and reductions."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx

from ldrf.channels.flow import Arriving, Channels, Flow, Rule, extents, first, named_dim, rank_before, unknown, where
from ldrf.channels.norms import cut_with
from ldrf.channels.tensors import cut_along
from ldrf.tracing.operations import bound_args, operation

# What the statistics of a norm written out go through.
NORM_CALLS = "add sub mul div sqrt rsqrt pow reciprocal clamp_min"
STATISTIC = {"getitem", *(f"aten.{name}" for name in NORM_CALLS.split())}


def same(flow: Flow, node: fx.Node, arriving: Arriving) -> Channels:
    """Element by element: channels stay where they are."""
    return first(arriving)


def elementwise(flow: Flow, node: fx.Node, arriving: Arriving) -> Channels | None:
    """Value by value on several operands: their channels are tied, and a tensor of the model is cut with them."""
    return _tied(flow, node, arriving, are_added=False)


def added(flow: Flow, node: fx.Node, arriving: Arriving) -> Channels | None:
    """A sum or difference of operands: as element by element, and what meets there may be a residual stream."""
    return _tied(flow, node, arriving, are_added=True)


def _tied(flow: Flow, node: fx.Node, arriving: Arriving, are_added: bool) -> Channels | None:
    rank = node.meta["val"].ndim
    aligned = []  # (dimension in the result, ids) of each operand with channels
    for operand in node.all_input_nodes:
        if operand.name in arriving:
            given = arriving[operand.name]
            aligned.append((given.dim + rank - operand.meta["val"].ndim, given.ids))
    dims, lengths = {d for d, _ in aligned}, {len(ids) for _, ids in aligned}
    if len(dims) > 1 or len(lengths) > 1:
        return unknown(flow, node, arriving)
    dim, ids = aligned[0]
    why = f"its outputs meet others in a sum or product{where(node)} that cannot be cut with them"
    for operand in node.all_input_nodes:
        if operand.name not in arriving and not _broadcasts(flow, operand, rank, dim, ids):
            for channels in arriving.values():
                flow.freeze(channels.ids, why)
            return None
    for _, other in aligned[1:]:
        if are_added and (ids != other).any():
            flow.summed.append(ids)
        flow.tie(ids, other, why)
    return Channels(dim, np.max([other for _, other in aligned], axis=0) if (ids < 0).any() else ids)


def _broadcasts(flow: Flow, operand: fx.Node, rank: int, dim: int, ids: np.ndarray) -> bool:
    """Whether an operand without channels is the same for all of them, or a tensor that can be cut."""
    value = operand.meta.get("val")
    if not isinstance(value, Tensor):
        return True
    own = dim - (rank - value.ndim)
    if own < 0 or value.shape[own] == 1:
        return True
    return cut_along(flow, operand, own, ids)


def pool(flow: Flow, node: fx.Node, arriving: Arriving) -> Channels | None:
    """A pool or another function of each map by itself: channels stay in dimension 1."""
    given = first(arriving)
    return given if given.dim == 1 and rank_before(node) > 2 else unknown(flow, node, arriving)


def reduce(flow: Flow, node: fx.Node, arriving: Arriving) -> Channels | None:
    """A mean, sum or maximum over other dimensions, or over the channels where it only scales or shifts them."""
    given = first(arriving)
    args: Any = node.args
    rank = args[0].meta["val"].ndim
    place = 2 if operation(node) == "aten.linalg_vector_norm" else 1
    dims: Any = args[place] if len(args) > place else node.kwargs.get("dim")
    dims = [dims] if isinstance(dims, int) else dims
    if not isinstance(dims, list | tuple) or not dims:
        return unknown(flow, node, arriving)
    gone = {int(d) % rank for d in dims}
    if given.dim in gone:
        return None if _goes_back(node, given) else unknown(flow, node, arriving)
    result = node.meta["val"]
    kept = (result[0] if isinstance(result, list | tuple) else result).ndim == rank
    return Channels(given.dim if kept else given.dim - sum(d < given.dim for d in gone), given.ids)


def _goes_back(node: fx.Node, given: Channels) -> bool:
    """Whether what was reduced over channels meets nothing but channels again, as the statistics of a norm do."""
    waiting, seen, meets_channels = list(node.users), set[fx.Node](), False
    while waiting:
        user = waiting.pop()
        value = user.meta.get("val")
        if operation(user) not in STATISTIC or not isinstance(value, Tensor) or given.dim >= value.ndim:
            return False
        size = value.shape[given.dim]
        if size not in (1, len(given.ids)):
            return False
        meets_channels = meets_channels or size > 1
        waiting += [u for u in user.users if size == 1 and u not in seen]
        seen.add(user)
    return meets_channels


def softmax(flow: Flow, node: fx.Node, arriving: Arriving) -> Channels | None:
    """A softmax or running sum along another dimension than that of the channels."""
    given = first(arriving)
    dim = named_dim(node, 1, node.meta["val"].ndim)
    return given if dim != given.dim else unknown(flow, node, arriving)


def transposed_groups(flow: Flow, node: fx.Node, arriving: Arriving) -> Channels | None:
    """A transposed convolution in groups: a neuron is all that goes into one group and all that comes out of it."""
    given, args = first(arriving), bound_args(node)
    weight, bias, groups = args["weight"], args.get("bias"), int(args.get("groups", 1))
    tensors = [tensor for tensor in (weight, bias) if tensor is not None]
    if groups == 1 or given.dim != 1 or any(tensor.name not in flow.trace.names for tensor in tensors):
        return unknown(flow, node, arriving)
    table = given.ids.reshape(groups, -1)
    flow.tie(table, table[:, :1], f"its outputs are read{where(node)} in groups with others that keep their number")
    shape, ids = extents(weight), np.repeat(table[:, 0], extents(weight)[1])
    cut_with(flow, [weight], given.ids)
    cut_with(flow, [bias], ids)
    flow.work.append((float(math.prod(shape) * math.prod(extents(args["input"])[2:])), ids))
    return Channels(1, ids)


def nothing(flow: Flow, node: fx.Node, arriving: Arriving) -> None:
    """A size or another number taken from the value carries no channels."""


def one_by_one(node: fx.Node) -> Rule | None:
    """The rule of a call without one of its own that torch says works on each value by itself."""
    if torch.Tag.pointwise not in getattr(node.target, "tags", ()):
        return None
    return same if len(node.all_input_nodes) == 1 else elementwise
