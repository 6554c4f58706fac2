"""Products of two values, as in attention: what passes, what is tied, and what stays."""

import math
from typing import Any, cast

import numpy as np
from torch import fx

from ldrf.channels.attention_scores import Scores, layer_behind
from ldrf.channels.flow import BATCH, Arriving, Channels, Flow, extents, unknown, where
from ldrf.tracing.operations import operation

ATTENTION = "aten.scaled_dot_product_attention"


def product(flow: Flow, node: fx.Node, arriving: Arriving) -> Channels | None:
    """A matrix product of two values: rows and columns pass, what is summed over goes in pairs, stacks are tied."""
    operands: Any = node.args[:2]
    rank = node.meta["val"].ndim
    places = [o.meta["val"].ndim - arriving[o.name].dim for o in operands if o.name in arriving]
    if places == [1, 2] and _compare(flow, node, arriving, None):
        return None
    found: list[Channels] = []
    for operand, summed, other in ((operands[0], 1, operands[1]), (operands[1], 2, operands[0])):
        given = arriving.get(operand.name)
        if given is None:
            continue
        back = operand.meta["val"].ndim - given.dim
        paired = arriving.get(other.name)
        alone = back == 3 - summed or (paired is not None and back > 2 and paired.dim == given.dim)
        if back == summed or not alone or operand.meta["val"].ndim != rank:
            unknown(flow, node, {operand.name: given})
        else:
            found.append(Channels(rank - back, given.ids))
    if found:
        flow.work.append((math.prod(extents(node)) / BATCH * extents(operands[0])[-1], found[0].ids))
    return _agreed(flow, node, found)


def attention(flow: Flow, node: fx.Node, arriving: Arriving) -> Channels | None:
    """softmax(q k^T) v: widths of v pass, whole heads of q, k and v go together, widths of q and k end in pairs."""
    operands: Any = node.args[:3]
    names = [operand.name for operand in operands]
    rank = operands[0].meta["val"].ndim
    heads = [arriving.get(name) for name in names]
    whole = all(h is not None and h.dim == rank - 3 for h in heads) and len({len(h.ids) for h in heads if h}) == 1
    last = all(h is not None and h.dim == rank - 1 for h in heads[:2]) and len(set(names)) == 3
    paired = last and _compare(flow, node, arriving, heads[2])
    found: list[Channels] = []
    for name in dict.fromkeys(n for n in arriving):
        given = arriving[name]
        if paired and name in names[:2]:
            continue
        if (whole and name in names) or (name == names[2] and given.dim == rank - 1 and names.count(name) == 1):
            found.append(given)
        elif name in names[:2] and given.dim == rank - 1:
            flow.freeze(
                given.ids, f"its outputs are queries or keys{where(node)}: the width they are compared in stays"
            )
        else:
            unknown(flow, node, {name: given})
    if found:
        query, value = extents(operands[0]), extents(operands[2])
        width = value[-1] + (query[-1] if whole else 0)
        flow.work.append((math.prod(query[:-1]) / BATCH * value[-2] * width, found[0].ids))
    return _agreed(flow, node, found)


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


def _agreed(flow: Flow, node: fx.Node, found: list[Channels]) -> Channels | None:
    """One answer where all say the same dimension, tied to each other; otherwise all are frozen."""
    if len({f.dim for f in found}) > 1 or len({len(f.ids) for f in found}) > 1:
        return unknown(flow, node, {str(i): f for i, f in enumerate(found)})
    for other in found[1:]:
        flow.tie(found[0].ids, other.ids, f"its outputs meet others{where(node)} that cannot be cut with them")
    return found[0] if found else None
