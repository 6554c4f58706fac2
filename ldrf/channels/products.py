"""Products of two values, as in attention: what passes, what is tied, and what stays."""

import math
from typing import cast

import numpy as np
from torch import fx

from ldrf.channels.attention_scores import Scores, layer_behind
from ldrf.channels.flow import BATCH, Arriving, Channels, Flow, extents, unknown, where
from ldrf.tracing.operations import operation

ATTENTION = "aten.scaled_dot_product_attention"


def product(flow: Flow, node: fx.Node, arriving: Arriving) -> Channels | None:
    """A matrix product of two values: rows and columns pass, what is summed over goes in pairs, stacks are tied."""
    left, right = cast("tuple[fx.Node, fx.Node]", node.args[:2])
    places = [_from_last(operand, arriving) for operand in (left, right) if operand.name in arriving]
    if places == [1, 2] and _compare(flow, node, arriving, None):
        return None
    passing: list[Channels] = []
    for operand, summed, other in ((left, 1, right), (right, 2, left)):
        if operand.name in arriving:
            if _passes(node, operand, summed, other, arriving):
                rank = node.meta["val"].ndim
                passing.append(Channels(rank - _from_last(operand, arriving), arriving[operand.name].ids))
            else:
                unknown(flow, node, {operand.name: arriving[operand.name]})
    if passing:
        flow.work.append((math.prod(extents(node)) / BATCH * extents(left)[-1], passing[0].ids))
    return _agreed(flow, node, passing)


def _from_last(operand: fx.Node, arriving: Arriving) -> int:
    """Where an operand's channels lie, counted from its last dimension, which is 1."""
    return operand.meta["val"].ndim - arriving[operand.name].dim


def _passes(node: fx.Node, operand: fx.Node, summed: int, other: fx.Node, arriving: Arriving) -> bool:
    """Whether channels of an operand are in the product: as its rows or columns, or as a stack that both have."""
    place = _from_last(operand, arriving)
    are_rows = place == 3 - summed
    are_stacked = other.name in arriving and place > 2 and arriving[other.name].dim == arriving[operand.name].dim
    return (are_rows or are_stacked) and operand.meta["val"].ndim == node.meta["val"].ndim


def attention(flow: Flow, node: fx.Node, arriving: Arriving) -> Channels | None:
    """softmax(q k^T) v: widths of v pass, whole heads of q, k and v go together, widths of q and k end in pairs."""
    operands = cast("tuple[fx.Node, fx.Node, fx.Node]", node.args[:3])
    query, key, value = (operand.name for operand in operands)
    rank = operands[0].meta["val"].ndim
    are_heads = _are_heads([arriving.get(name) for name in (query, key, value)], rank - 3)
    compared = _are_widths(arriving, query, key, value, rank) and _compare(flow, node, arriving, arriving.get(value))
    passing: list[Channels] = []
    for name, given in arriving.items():
        is_width = given.dim == rank - 1
        if compared and name in (query, key):
            continue
        if (are_heads and name in (query, key, value)) or (is_width and name == value and value not in (query, key)):
            passing.append(given)
        elif is_width and name in (query, key):
            flow.freeze(
                given.ids, f"its outputs are queries or keys{where(node)}: the width they are compared in stays"
            )
        else:
            unknown(flow, node, {name: given})
    if passing:
        flow.work.append((_attention_macs(operands, are_heads), passing[0].ids))
    return _agreed(flow, node, passing)


def _are_heads(operands: list[Channels | None], dim: int) -> bool:
    """Whether the channels of queries, keys and values are whole heads, as many of each."""
    heads = [operand for operand in operands if operand is not None and operand.dim == dim]
    return len(heads) == len(operands) and len({len(head.ids) for head in heads}) == 1


def _are_widths(arriving: Arriving, query: str, key: str, value: str, rank: int) -> bool:
    """Whether queries and keys, each a value of its own, have channels in the width they are compared in."""
    last = all(name in arriving and arriving[name].dim == rank - 1 for name in (query, key))
    return last and len({query, key, value}) == 3


def _attention_macs(operands: tuple[fx.Node, fx.Node, fx.Node], with_scores: bool) -> float:
    """Work per example in the product with the values, and in the scores where these go with it."""
    query, value = extents(operands[0]), extents(operands[2])
    width = value[-1] + (query[-1] if with_scores else 0)
    return math.prod(query[:-1]) / BATCH * value[-2] * width


def _compare(flow: Flow, node: fx.Node, arriving: Arriving, value: Channels | None) -> bool:
    """Whether queries and keys can lose width in pairs here; if so they are tied, and end.

    Those that come from one layer with each other or with the values do so only where the walk is asked for it; the
    values then lose the same width, as the code may know but one.
    """
    query, key = cast("tuple[fx.Node, fx.Node]", node.args[:2])
    given, other = arriving[query.name], arriving[key.name]
    made = [layer_behind(flow.trace, operand) for operand in (query, key)]
    if len(given.ids) != len(other.ids) or made[0] is None or made[1] is None:
        return False
    parts = [flow.roots(c.ids) for c in (given, other, value) if c is not None]
    if len(np.unique(np.concatenate(parts))) < sum(map(len, parts)) and not flow.packed:
        return False
    why = f"its outputs are compared{where(node)} with others that keep their number"
    flow.tie(given.ids, other.ids, why)
    if flow.packed and value is not None and len(value.ids) == len(given.ids):
        flow.tie(given.ids, value.ids, why)
    fused = operation(node) == ATTENTION
    rescales, layers = fused and node.kwargs.get("scale") is None, (made[0][0].node, made[1][0].node)
    flow.compared.append((Scores(node.name, query.name, key.name, not fused, rescales, layers), given.ids))
    flow.work.append((math.prod(extents(query)) / BATCH * extents(key)[-2 if fused else -1], given.ids))
    return True


def _agreed(flow: Flow, node: fx.Node, passing: list[Channels]) -> Channels | None:
    """All channels that pass, tied to each other, where they lie in the same dimension; otherwise all are frozen."""
    if len({channels.dim for channels in passing}) > 1 or len({len(channels.ids) for channels in passing}) > 1:
        return unknown(flow, node, {str(i): channels for i, channels in enumerate(passing)})
    for other in passing[1:]:
        flow.tie(passing[0].ids, other.ids, f"its outputs meet others{where(node)} that cannot be cut with them")
    return passing[0] if passing else None
