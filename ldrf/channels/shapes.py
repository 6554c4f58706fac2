"""Calls that move channels about: views, permutations, splits and slices.

A view or split may cut the channels' dimension in equal parts. The model's own code then expects equal parts again, so
channels at the same place of each part become one neuron.
"""

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from torch import Tensor, fx

from ldrf.channels.flow import (
    BATCH,
    FIXED,
    Arriving,
    Channels,
    Flow,
    Rule,
    extents,
    first,
    module_of,
    named_dim,
    rank_before,
    unknown,
    where,
)
from ldrf.tracing.operations import operation

LARGEST = 4_000_000  # entries of a view that are looked at


def view(flow: Flow, node: fx.Node, arriving: Arriving) -> Channels | None:
    """Follow a view where its channels stay whole, absorb their neighbours, or are split in equal parts."""
    given = first(arriving)
    before, after = extents(node.args[0]), extents(node)
    groups = _matched(before, after, given.dim)
    if groups is None:
        return unknown(flow, node, arriving)
    old, new = groups
    lead, trail = math.prod(before[old.start : given.dim]), math.prod(before[given.dim + 1 : old.stop])
    if lead % BATCH == 0 or lead * trail * len(given.ids) > LARGEST:
        return unknown(flow, node, arriving)
    placed = np.tile(np.repeat(given.ids, trail), lead).reshape([after[d] for d in new])
    axes = [a for a in range(placed.ndim) if (placed != placed.take([0], a)).any()]
    if not axes:
        return unknown(flow, node, arriving)
    axis = axes[flow.outer.get(node.name, -1)] if len(axes) > 1 else axes[0]
    kept = placed[tuple(slice(None) if a == axis else slice(0, 1) for a in range(placed.ndim))]
    if len(axes) > 1:
        flow.split[node.name] = given.ids, len(axes)
        flow.tie(placed, kept, f"its outputs are split{where(node)} together with others that keep their number")
    if placed.ndim + len(old) > 2 and not _survives_cut(flow, given.ids, placed, axis, lead, trail):
        return unknown(flow, node, arriving)
    flow.stated.append((module_of(node), placed.shape[axis], kept.ravel()))
    return Channels(new.start + axis, kept.ravel())


def _matched(before: tuple[int, ...], after: tuple[int, ...], dim: int) -> tuple[range, range] | None:
    """The shortest runs of dimensions of equal size, before and after, of which the first holds ``dim``."""
    i = j = 0
    while i < len(before):
        old, new = i, j
        left, right = before[i], after[j] if j < len(after) else 1
        i, j = i + 1, j + 1
        while left != right:
            if left < right and i < len(before):
                left, i = left * before[i], i + 1
            elif right < left and j < len(after):
                right, j = right * after[j], j + 1
            else:
                return None
        if old <= dim < i:
            return range(old, i), range(new, min(j, len(after)))
    return None


def _survives_cut(flow: Flow, ids: np.ndarray, placed: np.ndarray, axis: int, lead: int, trail: int) -> bool:
    """Whether, with one neuron less, the same view still puts every channel where its neuron is expected."""
    names, wanted = flow.roots(ids), flow.roots(placed)
    gone = names.max()
    if gone == FIXED or (names == gone).all():
        return False  # nothing is left that could be cut alone
    along = np.moveaxis(wanted, axis, 0).reshape(placed.shape[axis], -1)[:, 0]
    expected = np.compress(along != gone, wanted, axis)
    left = np.tile(np.repeat(names[names != gone], trail), lead)
    return left.size == expected.size and bool((left == expected.ravel()).all())


def reordered(*order: int) -> Rule:
    """The rule of a call that reorders dimensions: number i of its result is ``order[i]`` of what it reads."""

    def rule(flow: Flow, node: fx.Node, arriving: Arriving) -> Channels:
        return _permuted(first(arriving), order)

    return rule


def permute(flow: Flow, node: fx.Node, arriving: Arriving) -> Channels:
    """Dimensions in another order, which the second argument lists."""
    order: Any = node.args[1]
    return _permuted(first(arriving), order)


def transpose(flow: Flow, node: fx.Node, arriving: Arriving) -> Channels:
    """Two dimensions that change places: those that are named, or the first two."""
    args: Any = node.args
    order = list(range(node.meta["val"].ndim))
    one, two = args[1:3] if len(args) > 2 else (0, 1)
    order[one], order[two] = order[two], order[one]
    return _permuted(first(arriving), order)


def _permuted(given: Channels, order: Sequence[int]) -> Channels:
    return Channels([int(d) % len(order) for d in order].index(given.dim), given.ids)


def picked(flow: Flow, node: fx.Node, arriving: dict[str, Any]) -> Channels | None:
    """One result of a call with several: that of a split, or the first of a norm or pool with statistics."""
    given, place = next(iter(arriving.values())), cast("int", node.args[1])
    if isinstance(given, list):
        return given[place]
    return given if isinstance(node.meta.get("val"), Tensor) else None


def unsqueeze(flow: Flow, node: fx.Node, arriving: Arriving) -> Channels:
    """A new dimension of one index."""
    given = first(arriving)
    at = named_dim(node, 1, node.meta["val"].ndim)
    return Channels(given.dim + (at <= given.dim), given.ids)


def squeeze(flow: Flow, node: fx.Node, arriving: Arriving) -> Channels | None:
    """Dimensions of one index go; one that holds a single channel is not followed."""
    given = first(arriving)
    before = extents(node.args[0])
    asked: Any = node.args[1] if len(node.args) > 1 else range(len(before))
    dims = {int(d) % len(before) for d in (asked if isinstance(asked, list | tuple | range) else [asked])}
    gone = [d for d in dims if before[d] == 1]
    return unknown(flow, node, arriving) if given.dim in gone else _without(given, gone)


def _without(given: Channels, dims: Any) -> Channels:
    return Channels(given.dim - sum(d < given.dim for d in dims), given.ids)


def expand(flow: Flow, node: fx.Node, arriving: Arriving) -> Channels:
    given = first(arriving)
    dim = given.dim + node.meta["val"].ndim - rank_before(node)
    return Channels(dim, given.ids)


def repeat(flow: Flow, node: fx.Node, arriving: Arriving) -> Channels | None:
    given = first(arriving)
    times: Any = node.args[1]
    dim = given.dim + len(times) - rank_before(node)
    if not isinstance(times[dim], int):
        return unknown(flow, node, arriving)
    return Channels(dim, np.tile(given.ids, times[dim]))


def pad(flow: Flow, node: fx.Node, arriving: Arriving) -> Channels | None:
    given = first(arriving)
    rank, pads = node.meta["val"].ndim, cast("list[int]", node.args[1])
    position = 2 * (rank - 1 - given.dim)
    if any(pads[position : position + 2]):
        flow.freeze(given.ids, f"its outputs are padded with extra channels{where(node)}")
        return None
    return given


def take(flow: Flow, node: fx.Node, arriving: Arriving) -> Channels | None:
    """A slice: along another dimension it leaves channels alone, along theirs it takes equal parts of them."""
    given = first(arriving)
    args: Any = [*node.args, *(None,) * 5]
    dim, total = int(args[1] or 0) % node.meta["val"].ndim, len(given.ids)
    if dim != given.dim:
        return given
    start, end = args[2] or 0, total if args[3] is None else args[3]
    if not isinstance(start, int) or not isinstance(end, int) or (args[4] or 1) != 1:
        return unknown(flow, node, arriving)
    start, end = (max(0, e + total if e < 0 else min(e, total)) for e in (start, end))
    if start == 0 and end == total:
        return given
    parts = _parts(flow, node, given, [start, end - start, total - end])
    return parts[1] if parts else None


def split(flow: Flow, node: fx.Node, arriving: Arriving) -> list[Channels] | Channels | None:
    """Split or chunk: along the channels, all parts shrink by the same share."""
    given = first(arriving)
    dim = named_dim(node, 2, rank_before(node))
    values = node.meta["val"]
    if dim != given.dim:
        return [given] * len(values)
    return _parts(flow, node, given, [int(v.shape[dim]) for v in values])


def _parts(flow: Flow, node: fx.Node, given: Channels, sizes: list[int]) -> list[Channels] | None:
    """Channels of each part; those at the same place of equal pieces become one neuron."""
    if len(sizes) == 1:
        return [given]
    piece = math.gcd(*sizes)
    if piece < 2:
        flow.freeze(given.ids, f"its outputs are split in unequal parts{where(node)}")
        return None
    why = f"its outputs are split{where(node)} together with others that keep their number"
    table = given.ids.reshape(-1, piece)
    flow.tie(table, table[:1], why)
    flow.stated += [(module_of(node), size, table[0]) for size in {*sizes, sizes[0] + sizes[1]}]
    return [Channels(given.dim, np.tile(table[0], size // piece)) for size in sizes]


def halves(flow: Flow, node: fx.Node, arriving: Arriving) -> Channels | None:
    """A gated linear unit: the first half times the sigmoid of the second."""
    given = first(arriving)
    dim = named_dim(node, 1, node.meta["val"].ndim, default=-1)
    if dim != given.dim:
        return given
    parts = _parts(flow, node, given, [len(given.ids) // 2] * 2)
    return parts[0] if parts else None


def unbind(flow: Flow, node: fx.Node, arriving: Arriving) -> list[Channels] | None:
    given = first(arriving)
    values = node.meta["val"]
    dim = named_dim(node, 1, values[0].ndim + 1)
    return unknown(flow, node, arriving) if dim == given.dim else [_without(given, [dim])] * len(values)


def select(flow: Flow, node: fx.Node, arriving: Arriving) -> Channels | None:
    given = first(arriving)
    dim = named_dim(node, 1, node.meta["val"].ndim + 1)
    return unknown(flow, node, arriving) if dim == given.dim else _without(given, [dim])


def index(flow: Flow, node: fx.Node, arriving: Arriving) -> Channels | None:
    """Picking positions along one other dimension."""
    given = first(arriving)
    places: Any = node.args[1]
    used = [i for i, place in enumerate(places) if place is not None]
    source = node.args[0]
    if len(used) != 1 or used[0] == given.dim or not isinstance(source, fx.Node) or source.name not in arriving:
        return unknown(flow, node, arriving)
    return Channels(given.dim + (places[used[0]].meta["val"].ndim - 1) * (used[0] < given.dim), given.ids)


def elsewhere(flow: Flow, node: fx.Node, arriving: Arriving) -> Channels | None:
    """A roll, flip or running sum along other dimensions."""
    given = first(arriving)
    rank = node.meta["val"].ndim
    args: Any = node.args
    dims = args[2] if operation(node) == "aten.roll" and len(args) > 2 else args[-1]
    dims = dims if isinstance(dims, list | tuple) else [dims]
    return unknown(flow, node, arriving) if given.dim in {int(d) % rank for d in dims} else given


def shuffle_pixels(flow: Flow, node: fx.Node, arriving: Arriving) -> Channels | None:
    """Groups of r * r channels become one channel of a map r times as large, or the other way round."""
    given, area = first(arriving), cast("int", node.args[1]) ** 2
    if given.dim != node.meta["val"].ndim - 3:
        return unknown(flow, node, arriving)
    if operation(node) == "aten.pixel_unshuffle":
        return Channels(given.dim, np.repeat(given.ids, area))
    table = given.ids.reshape(-1, area)
    flow.tie(table, table[:, :1], f"its outputs are shuffled{where(node)} together with others that keep their number")
    return Channels(given.dim, table[:, 0].copy())
