"""What each ATen operation does to channels: a table from its name to a rule, not branches.

A rule gets the channels that arrive at a call and says which its result carries (a list for several results, None when
they end there). What is not in the table freezes whatever reaches it.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx

from ldrf.channels import joins, products, shapes
from ldrf.channels.flow import Channels, Flow, Slice, extents, first, unknown, where
from ldrf.channels.tensors import cut_along
from ldrf.tracing.narrowing import RESHAPES
from ldrf.tracing.operations import NORM, bound_args, operation

Arriving = dict[str, Channels]
Rule = Callable[[Flow, fx.Node, Arriving], Channels | list[Channels] | None]

SUMS = {"aten.add", "aten.sub"}
# What the statistics of a norm written out go through.
NORM_CALLS = "add sub mul div sqrt rsqrt pow reciprocal clamp_min"
STATISTIC = {"getitem", *(f"aten.{name}" for name in NORM_CALLS.split())}


def _same(flow: Flow, node: fx.Node, arriving: Arriving) -> Channels:
    """Element by element: channels stay where they are."""
    return first(arriving)


def _elementwise(flow: Flow, node: fx.Node, arriving: Arriving) -> Channels | None:
    """A sum or product: channels of both operands are tied; a per-channel tensor is cut along."""
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
        if operation(node) in SUMS and (ids != other).any():
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


def _pool(flow: Flow, node: fx.Node, arriving: Arriving) -> Channels | None:
    given = first(arriving)
    return given if given.dim == 1 and node.args[0].meta["val"].ndim > 2 else unknown(flow, node, arriving)  # pyright: ignore


def _reduce(flow: Flow, node: fx.Node, arriving: Arriving) -> Channels | None:
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
    waiting, seen, found = list(node.users), set[fx.Node](), False
    while waiting:
        user = waiting.pop()
        value = user.meta.get("val")
        if operation(user) not in STATISTIC or not isinstance(value, Tensor) or given.dim >= value.ndim:
            return False
        size = value.shape[given.dim]
        if size not in (1, len(given.ids)):
            return False
        found = found or size > 1
        waiting += [u for u in user.users if size == 1 and u not in seen]
        seen.add(user)
    return found


def _softmax(flow: Flow, node: fx.Node, arriving: Arriving) -> Channels | None:
    given = first(arriving)
    dim = int(node.args[1]) % node.meta["val"].ndim  # pyright: ignore
    return given if dim != given.dim else unknown(flow, node, arriving)


def _cut_along(flow: Flow, tensors: Any, ids: np.ndarray) -> None:
    """Note per-channel tensors of a norm or activation."""
    for operand in tensors:
        if isinstance(operand, fx.Node) and operand.name in flow.trace.names:
            flow.slices.append(Slice(flow.trace.names[operand.name], 0, ids))


def _batch_norm(flow: Flow, node: fx.Node, arriving: Arriving) -> Channels | None:
    """A BatchNorm that could not be folded: per channel, its four tensors are cut along."""
    given = first(arriving)
    if given.dim != 1 or len(arriving) > 1:
        return unknown(flow, node, arriving)
    _cut_along(flow, node.args[1:5], given.ids)
    return given


def _layer_norm(flow: Flow, node: fx.Node, arriving: Arriving) -> Channels | None:
    """Over other dimensions it leaves channels alone; over theirs alone it is cut along, and sees fewer of them."""
    given, rank = first(arriving), node.args[0].meta["val"].ndim  # pyright: ignore
    sizes: Any = node.args[1]
    if given.dim < rank - len(sizes):
        return given
    if len(sizes) > 1 or len(arriving) > 1:
        return unknown(flow, node, arriving)
    _cut_along(flow, node.args[2:4], given.ids)
    return given


def _group_norm(flow: Flow, node: fx.Node, arriving: Arriving) -> Channels | None:
    """Every group keeps as many channels as the others: those at the same place of each group become one neuron."""
    given = first(arriving)
    args: Any = node.args
    native = operation(node) == "aten.native_group_norm"
    groups, tensors = (args[6], args[1:3]) if native else (args[1], args[2:4])
    if given.dim != 1 or len(arriving) > 1 or not isinstance(groups, int):
        return unknown(flow, node, arriving)
    table = given.ids.reshape(groups, -1)
    ids = given.ids
    if 1 < groups < len(ids):
        flow.tie(table, table[:1], f"its outputs are normalised{where(node)} together with others")
        ids = np.tile(table[0], groups)
    elif groups == len(ids):
        return unknown(flow, node, arriving)  # the number of groups, which is the width, is written in the module
    if all(size == 1 for size in args[0].meta["val"].shape[2:]):  # torch refuses a group of a single value
        flow.freeze(ids, f"its outputs are normalised{where(node)} in groups that could be left with one value")
    _cut_along(flow, tensors, ids)
    return Channels(1, ids)


def _transposed_groups(flow: Flow, node: fx.Node, arriving: Arriving) -> Channels | None:
    """A transposed convolution in groups: a neuron is all that goes into one group and all that comes out of it."""
    given, args = first(arriving), bound_args(node)
    weight, bias, groups = args["weight"], args.get("bias"), int(args.get("groups", 1))
    tensors = [tensor for tensor in (weight, bias) if tensor is not None]
    if groups == 1 or given.dim != 1 or any(tensor.name not in flow.trace.names for tensor in tensors):
        return unknown(flow, node, arriving)
    table = given.ids.reshape(groups, -1)
    flow.tie(table, table[:, :1], f"its outputs are read{where(node)} in groups with others that keep their number")
    shape, ids = extents(weight), np.repeat(table[:, 0], extents(weight)[1])
    _cut_along(flow, [weight], given.ids)
    _cut_along(flow, [bias], ids)
    flow.channel_dims[node.name] = 1, 1
    flow.work.append((float(math.prod(shape) * math.prod(extents(args["input"])[2:])), ids))
    return Channels(1, ids)


def _prelu(flow: Flow, node: fx.Node, arriving: Arriving) -> Channels | None:
    given = first(arriving)
    weight: Any = node.args[1]
    if weight.meta["val"].numel() > 1:
        if given.dim != 1 and operation(node) == "aten.prelu":
            return unknown(flow, node, arriving)
        _cut_along(flow, [weight], given.ids)
    return given


def _nothing(flow: Flow, node: fx.Node, arriving: Arriving) -> None:
    """A size or another number taken from the value carries no channels."""


def one_by_one(node: fx.Node) -> Rule | None:
    """The rule of a call without one of its own that torch says works on each value by itself."""
    if torch.Tag.pointwise not in getattr(node.target, "tags", ()):
        return None
    return _same if len(node.all_input_nodes) == 1 else _elementwise


def _named(names: str, rule: Rule) -> dict[str, Rule]:
    return {f"aten.{name}": rule for name in names.split()}


ACTIVATIONS = _named(
    "relu relu6 hardtanh gelu silu sigmoid tanh hardswish hardsigmoid leaky_relu elu selu celu mish", _same
)

RULES: dict[str, Rule] = {
    **ACTIVATIONS,
    **_named(
        "softplus clone contiguous dropout neg abs sqrt rsqrt square exp log pow clamp clamp_min clamp_max alias "
        "detach detach_ to _to_copy lift_fresh_copy softsign erf log_sigmoid log_sigmoid_forward hardshrink softshrink "
        "threshold reciprocal sign sin cos log1p expm1 floor ceil round logical_not bitwise_not isnan type_as "
        "native_dropout",
        _same,
    ),
    **_named(
        "add sub mul div maximum minimum where masked_fill eq ne gt lt ge le logical_and logical_or fmod remainder "
        "floor_divide rsub lerp addcmul addcdiv",
        _elementwise,
    ),
    **_named(
        "max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d "
        "adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d max_pool2d_with_indices "
        "max_pool3d_with_indices _adaptive_avg_pool2d _adaptive_avg_pool3d upsample_nearest1d upsample_nearest2d "
        "upsample_nearest3d upsample_linear1d upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d "
        "_upsample_bilinear2d_aa _upsample_bicubic2d_aa _upsample_nearest_exact2d reflection_pad1d reflection_pad2d "
        "replication_pad1d replication_pad2d replication_pad3d grid_sampler_2d grid_sampler",
        _pool,
    ),
    **_named("mean sum amax amin var std max min argmax argmin prod var_mean linalg_vector_norm", _reduce),
    **_named("softmax _softmax log_softmax _log_softmax cumsum", _softmax),
    **_named("permute transpose t", shapes.permute),
    **_named("constant_pad_nd pad", shapes.pad),
    **_named("slice", shapes.take),
    **_named("split split_with_sizes chunk", shapes.split),
    **_named("unbind", shapes.unbind),
    **_named("select", shapes.select),
    **_named("index", shapes.index),
    **_named("roll flip", shapes.elsewhere),
    **_named("unsqueeze", shapes.unsqueeze),
    **_named("squeeze", shapes.squeeze),
    **_named("expand", shapes.expand),
    **_named("repeat", shapes.repeat),
    **_named("cat concat", joins.join),
    **_named("stack", joins.stack),
    **_named("glu", shapes.halves),
    **_named("pixel_shuffle pixel_unshuffle", shapes.shuffle_pixels),
    **_named("bmm matmul", products.product),
    **_named("scaled_dot_product_attention", products.attention),
    **_named("conv_transpose1d conv_transpose2d conv_transpose3d", _transposed_groups),
    **_named("sym_size", _nothing),
    **_named("prelu _prelu_kernel", _prelu),
    **_named("layer_norm native_layer_norm rms_norm _fused_rms_norm", _layer_norm),
    **_named("group_norm native_group_norm", _group_norm),
    **dict.fromkeys(RESHAPES, shapes.view),
    NORM: _batch_norm,
}
