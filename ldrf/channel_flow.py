"""How channels travel through a graph: a table from ATen operation to what it does to them.

Every layer's outputs get fresh ids; each rule says which ids the result of a call carries and along
which dimension. Ids that meet in a sum are tied together; ids that reach a call without a rule are
frozen with a reason a person can read.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor, fx

from ldrf.tracing import CHANNEL_DIM, NORM, RESHAPES, Layer, Trace, operation


@dataclass(frozen=True)
class Channels:
    """Which channel each index of one dimension of a value belongs to."""

    dim: int
    ids: np.ndarray


@dataclass(frozen=True)
class Slice:
    """A tensor whose dimension ``dim`` is indexed by these channels, so it is cut with them."""

    tensor: str
    dim: int
    ids: np.ndarray


@dataclass
class Flow:
    """What the walk found: produced ids, consuming layers, tensors to cut, ties and frozen ids."""

    trace: Trace
    produced: dict[str, np.ndarray] = field(default_factory=dict)
    consumed: list[tuple[Layer, np.ndarray]] = field(default_factory=list)
    slices: list[Slice] = field(default_factory=list)
    frozen: list[tuple[np.ndarray, str]] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    values: dict[str, Channels] = field(default_factory=dict)

    def fresh(self, count: int) -> np.ndarray:
        first = len(self.parents)
        self.parents.extend(range(first, first + count))
        return np.arange(first, first + count)

    def root(self, channel: int) -> int:
        while self.parents[channel] != channel:
            self.parents[channel] = self.parents[self.parents[channel]]
            channel = self.parents[channel]
        return channel

    def tie(self, left: np.ndarray, right: np.ndarray) -> None:
        for a, b in zip(left.tolist(), right.tolist(), strict=True):
            self.parents[self.root(b)] = self.root(a)

    def freeze(self, ids: np.ndarray, reason: str) -> None:
        self.frozen.append((ids, reason))


Rule = Callable[[Flow, fx.Node, dict[str, Channels]], Channels | None]


def follow_channels(trace: Trace) -> Flow:
    """Walk the graph once, linear in its size, and record where every layer's channels go."""
    flow = Flow(trace)
    layers = {layer.node: layer for layer in trace.layers}
    norms = {layer.norm.node: layer for layer in trace.layers if layer.norm}
    for node in trace.nodes:
        arriving = {n.name: flow.values[n.name] for n in node.all_input_nodes if n.name in flow.values}
        if node.name in layers:
            result = _layer_rule(flow, layers[node.name], node, arriving)
        elif node.name in norms:
            result = flow.values.get(norms[node.name].node)
        elif not arriving or (operation(node) == NORM and any(u.name in norms for u in node.users)):
            continue
        else:
            result = RULES.get(operation(node), _unknown)(flow, node, arriving)
        if result is not None:
            flow.values[node.name] = result
    for name in trace.outputs:
        if name in flow.values:
            flow.freeze(flow.values[name].ids, "it is an output of the model")
    return flow


def _layer_rule(flow: Flow, layer: Layer, node: fx.Node, arriving: dict[str, Channels]) -> Channels | None:
    source = node.args[0]
    given = arriving.get(source.name) if isinstance(source, fx.Node) else None
    dim = node.meta["val"].ndim - 1 if layer.is_linear else 1
    if given is not None and given.dim != dim:
        flow.freeze(given.ids, f"'{layer.name}' reads its outputs along another dimension")
        given = None
    if layer.is_depthwise:
        if given is None:
            produced = _produce(flow, layer, dim)
            flow.freeze(produced.ids, "it is a depthwise convolution, and the channels it reads keep their number")
            return produced
        flow.slices += [Slice(name, 0, given.ids) for name in layer_tensors(layer)]
        return given
    if given is not None:
        if layer.groups == 1:
            flow.consumed.append((layer, given.ids))
        else:
            flow.freeze(given.ids, f"'{layer.name}' reads its outputs in {layer.groups} groups")
    produced = _produce(flow, layer, dim)
    if layer.groups > 1:
        flow.freeze(produced.ids, f"it is a grouped convolution ({layer.groups} groups)")
    return produced


def _produce(flow: Flow, layer: Layer, dim: int) -> Channels:
    ids = flow.fresh(layer.outputs)
    flow.produced[layer.node] = ids
    return Channels(dim, ids)


def layer_tensors(layer: Layer) -> list[str]:
    """Names of the tensors of a layer and of the norm folded into it."""
    norm = layer.norm
    names = [layer.weight, layer.bias, *((norm.weight, norm.bias, norm.mean, norm.var) if norm else ())]
    return [name for name in names if name]


def _where(node: fx.Node) -> str:
    stack = node.meta.get("nn_module_stack") or {}
    path = list(stack.values())[-1][0] if stack else ""
    return f" in '{path}'" if path else ""


def _unknown(flow: Flow, node: fx.Node, arriving: dict[str, Channels]) -> None:
    name = operation(node).removeprefix("aten.")
    for channels in arriving.values():
        flow.freeze(channels.ids, f"its outputs pass through '{name}'{_where(node)}, which mixes or reorders them")


def _same(flow: Flow, node: fx.Node, arriving: dict[str, Channels]) -> Channels:
    """Element by element: channels stay where they are."""
    return next(iter(arriving.values()))


def _elementwise(flow: Flow, node: fx.Node, arriving: dict[str, Channels]) -> Channels | None:
    """A sum or product: channels of both operands are tied; a per-channel tensor is cut along."""
    rank = node.meta["val"].ndim
    aligned = []  # (dimension in the result, ids) of each operand with channels
    for operand in node.all_input_nodes:
        if operand.name in arriving:
            given = arriving[operand.name]
            aligned.append((given.dim + rank - operand.meta["val"].ndim, given.ids))
    dims, lengths = {d for d, _ in aligned}, {len(ids) for _, ids in aligned}
    if len(dims) > 1 or len(lengths) > 1:
        return _unknown(flow, node, arriving)
    dim, ids = aligned[0]
    for operand in node.all_input_nodes:
        if operand.name not in arriving and not _broadcasts(flow, operand, rank, dim, ids):
            flow.freeze(ids, f"its outputs meet others in a sum or product{_where(node)} that cannot be cut with them")
            return None
    for _, other in aligned[1:]:
        flow.tie(ids, other)
    return Channels(dim, ids)


def _broadcasts(flow: Flow, operand: fx.Node, rank: int, dim: int, ids: np.ndarray) -> bool:
    """Whether an operand without channels is the same for all of them, or a tensor that can be cut."""
    value = operand.meta.get("val")
    if not isinstance(value, Tensor):
        return True
    own = dim - (rank - value.ndim)
    if own < 0 or value.shape[own] == 1:
        return True
    if operand.name in flow.trace.names and operand.name not in flow.trace.fixed and value.shape[own] == len(ids):
        flow.slices.append(Slice(flow.trace.names[operand.name], own, ids))
        return True
    return False


def _pool(flow: Flow, node: fx.Node, arriving: dict[str, Channels]) -> Channels | None:
    given = next(iter(arriving.values()))
    return given if given.dim == 1 and node.args[0].meta["val"].ndim > 2 else _unknown(flow, node, arriving)  # pyright: ignore


def _mean(flow: Flow, node: fx.Node, arriving: dict[str, Channels]) -> Channels | None:
    given = next(iter(arriving.values()))
    rank = node.args[0].meta["val"].ndim  # pyright: ignore
    if len(node.args) < 2 or not isinstance(node.args[1], list | tuple):
        return _unknown(flow, node, arriving)
    dims = {int(d) % rank for d in node.args[1]}  # pyright: ignore
    keep = bool(node.args[2]) if len(node.args) > 2 else bool(node.kwargs.get("keepdim", False))
    if given.dim in dims:
        return _unknown(flow, node, arriving)
    return Channels(given.dim if keep else given.dim - sum(d < given.dim for d in dims), given.ids)


def _norm_rule(flow: Flow, node: fx.Node, arriving: dict[str, Channels]) -> Channels | None:
    """A BatchNorm that could not be folded: per channel, its four tensors are cut along."""
    given = next(iter(arriving.values()))
    if given.dim != 1 or len(arriving) > 1:
        return _unknown(flow, node, arriving)
    for operand in node.args[1:5]:
        if isinstance(operand, fx.Node) and operand.name in flow.trace.names:
            flow.slices.append(Slice(flow.trace.names[operand.name], 0, given.ids))
    return given


def _prelu(flow: Flow, node: fx.Node, arriving: dict[str, Channels]) -> Channels | None:
    given = next(iter(arriving.values()))
    weight = node.args[1]
    if isinstance(weight, fx.Node) and weight.name in flow.trace.names and weight.meta["val"].numel() > 1:
        flow.slices.append(Slice(flow.trace.names[weight.name], 0, given.ids))
    return given


def _reshape(flow: Flow, node: fx.Node, arriving: dict[str, Channels]) -> Channels | None:
    """Follow a flatten or view when the channels' dimension stays whole or absorbs the ones behind it."""
    given = next(iter(arriving.values()))
    before = tuple(node.args[0].meta["val"].shape)  # pyright: ignore
    after = tuple(node.meta["val"].shape)
    lead = math.prod(before[1 : given.dim]) if given.dim else None
    if lead is None or before[0] != after[0]:
        return _unknown(flow, node, arriving)
    passed, start = 1, 1
    while start < len(after) and passed < lead:
        passed *= after[start]
        start += 1
    if passed != lead or start >= len(after) or not isinstance(after[start], int):
        return _unknown(flow, node, arriving)
    inner, size = 1, before[given.dim]
    for extent in before[given.dim + 1 :]:
        if size * inner == after[start]:
            break
        inner *= extent
    if size * inner != after[start]:
        return _unknown(flow, node, arriving)
    node.meta[CHANNEL_DIM] = start
    return Channels(start, np.repeat(given.ids, inner))


def _permute(flow: Flow, node: fx.Node, arriving: dict[str, Channels]) -> Channels:
    given = next(iter(arriving.values()))
    rank = node.meta["val"].ndim
    if operation(node) == "aten.permute":
        order = [int(d) % rank for d in node.args[1]]  # pyright: ignore
    else:
        first, second = (int(d) % rank for d in node.args[1:3])  # pyright: ignore
        order = list(range(rank))
        order[first], order[second] = second, first
    return Channels(order.index(given.dim), given.ids)


def _pad(flow: Flow, node: fx.Node, arriving: dict[str, Channels]) -> Channels | None:
    given = next(iter(arriving.values()))
    rank, pads = node.meta["val"].ndim, list(node.args[1])  # pyright: ignore
    position = 2 * (rank - 1 - given.dim)
    if any(pads[position : position + 2]):
        flow.freeze(given.ids, f"its outputs are padded with extra channels{_where(node)}")
        return None
    return given


def _along(flow: Flow, node: fx.Node, arriving: dict[str, Channels]) -> Channels | None:
    """A slice along another dimension leaves channels alone."""
    given = next(iter(arriving.values()))
    rank = node.meta["val"].ndim
    dim = int(node.args[1]) % rank if len(node.args) > 1 else 0  # pyright: ignore
    return given if dim != given.dim else _unknown(flow, node, arriving)


def _nothing(flow: Flow, node: fx.Node, arriving: dict[str, Channels]) -> None:
    """A size or another number taken from the value carries no channels."""


def _named(names: str, rule: Rule) -> dict[str, Rule]:
    return {f"aten.{name}": rule for name in names.split()}


ACTIVATIONS = _named(
    "relu relu6 hardtanh gelu silu sigmoid tanh hardswish hardsigmoid leaky_relu elu selu celu mish", _same
)

RULES: dict[str, Rule] = {
    **ACTIVATIONS,
    **_named(
        "softplus clone contiguous dropout neg abs sqrt rsqrt square exp log pow clamp clamp_min clamp_max alias "
        "detach detach_ to _to_copy lift_fresh_copy softsign erf log_sigmoid hardshrink softshrink threshold",
        _same,
    ),
    **_named("add sub mul div maximum minimum", _elementwise),
    **_named(
        "max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d "
        "adaptive_avg_pool3d adaptive_max_pool2d max_pool2d_with_indices upsample_nearest2d upsample_bilinear2d",
        _pool,
    ),
    **_named("mean", _mean),
    **_named("permute transpose", _permute),
    **_named("constant_pad_nd pad", _pad),
    **_named("slice", _along),
    **_named("sym_size", _nothing),
    **_named("prelu _prelu_kernel", _prelu),
    **dict.fromkeys(RESHAPES, _reshape),
    NORM: _norm_rule,
    "getitem": _same,
}
