"""Sizes that a traced call spells out, brought in line with maps that have fewer channels than the traced ones."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, fx

CHANNEL_DIM = (
    "ldrf_channel_dim"  # node.meta key: (dimension of the first argument, dimension of the result) of channels
)
CUT_ALONG = "ldrf_cut_along"  # node.meta key: the tensor of the model that this call moves and that channels cut
GROUPS = 6  # place of the number of groups among the arguments of a transposed convolution
RESHAPES = {"aten.view", "aten.reshape", "aten._unsafe_view"}

Args = list[Any]


def narrowed_args(operation: str, node: fx.Node, args: tuple[Any, ...]) -> Args:
    """The call's arguments for the maps at hand; untouched where they have the traced width."""
    rule = RULES.get(operation)
    found = list(args)
    if rule is None or not isinstance(args[0], Tensor):
        return found
    return rule(node, found)


def _ratio(node: fx.Node, args: Args) -> tuple[int, int, int] | None:
    """Channels now, channels traced, and where they lie in the result; None where there are none to follow."""
    if CHANNEL_DIM not in node.meta:
        return None
    before, after = node.meta[CHANNEL_DIM]
    return args[0].shape[before], int(node.args[0].meta["val"].shape[before]), after  # pyright: ignore


def _sized(node: fx.Node, args: Args) -> Args:
    """A view or an expand: the size where the channels lie shrinks with them."""
    found = _ratio(node, args)
    if found is None:
        return args
    now, traced, dim = found
    size = int(node.meta["val"].shape[dim]) * now // traced
    sizes = [size if i == dim else s for i, s in enumerate(args[1])]
    return [args[0], sizes, *args[2:]]


def _split(node: fx.Node, args: Args) -> Args:
    """A split along the channels: each part keeps its share."""
    found = _ratio(node, args)
    if found is None:
        return args
    now, traced, _ = found
    parts = args[1]
    parts = [p * now // traced for p in parts] if isinstance(parts, list | tuple) else parts * now // traced
    return [args[0], parts, *args[2:]]


def _sliced(node: fx.Node, args: Args) -> Args:
    """A slice of the channels: both ends move with their number."""
    found = _ratio(node, args)
    if found is None:
        return args
    now, traced, _ = found
    return [*args[:2], *(e * now // traced if isinstance(e, int) and abs(e) <= traced else e for e in args[2:4])]


def _last(node: fx.Node, args: Args) -> Args:
    """A norm over the last dimension alone states its size."""
    return [args[0], [args[0].shape[-1]], *args[2:]] if len(args[1]) == 1 else args


def _grouped(node: fx.Node, args: Args) -> Args:
    """A native group norm states the number of channels and of positions."""
    x = args[0]
    return [*args[:3], x.shape[0], x.shape[1], x[0, 0].numel(), *args[6:]]


def _regrouped(node: fx.Node, args: Args) -> Args:
    """A transposed convolution in groups states their number; they go whole."""
    if len(args) <= GROUPS:
        return args
    groups = args[GROUPS] * args[0].shape[1] // int(node.args[0].meta["val"].shape[1])  # pyright: ignore
    return [*args[:GROUPS], groups, *args[GROUPS + 1 :]]


RULES: dict[str, Callable[[fx.Node, Args], Args]] = {
    **dict.fromkeys((*RESHAPES, "aten.expand"), _sized),
    **dict.fromkeys((f"aten.conv_transpose{d}d" for d in (1, 2, 3)), _regrouped),
    "aten.split": _split,
    "aten.split_with_sizes": _split,
    "aten.slice": _sliced,
    **dict.fromkeys(("aten.layer_norm", "aten.native_layer_norm", "aten.rms_norm", "aten._fused_rms_norm"), _last),
    "aten.native_group_norm": _grouped,
}
