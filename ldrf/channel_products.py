"""Products of two values, as in attention: what passes, what is tied, and what stays."""

import math
from typing import Any

from torch import fx

from ldrf.channels import BATCH, Channels, Flow, extents, unknown, where

Arriving = dict[str, Channels]


def product(flow: Flow, node: fx.Node, arriving: Arriving) -> Channels | None:
    """A matrix product of two values: rows and columns pass, what is summed over stays whole, stacks are tied."""
    operands: Any = node.args[:2]
    rank = node.meta["val"].ndim
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
    """softmax(q k^T) v: widths of v pass, whole heads of q, k and v go together, the width of q and k stays."""
    names: Any = [operand.name for operand in node.args[:3]]  # pyright: ignore
    rank = node.args[0].meta["val"].ndim  # pyright: ignore
    heads = [arriving.get(name) for name in names]
    whole = all(h is not None and h.dim == rank - 3 for h in heads) and len({len(h.ids) for h in heads if h}) == 1
    found: list[Channels] = []
    for name in dict.fromkeys(n for n in arriving):
        given = arriving[name]
        if (whole and name in names) or (name == names[2] and given.dim == rank - 1 and names.count(name) == 1):
            found.append(given)
        elif name in names[:2] and given.dim == rank - 1:
            flow.freeze(
                given.ids, f"its outputs are queries or keys{where(node)}: the width they are compared in stays"
            )
        else:
            unknown(flow, node, {name: given})
    if found:
        query, value = extents(node.args[0]), extents(node.args[2])
        width = value[-1] + (query[-1] if whole else 0)
        flow.work.append((math.prod(query[:-1]) / BATCH * value[-2] * width, found[0].ids))
    return _agreed(flow, node, found)


def _agreed(flow: Flow, node: fx.Node, found: list[Channels]) -> Channels | None:
    """One answer where all say the same dimension, tied to each other; otherwise all are frozen."""
    if len({f.dim for f in found}) > 1 or len({len(f.ids) for f in found}) > 1:
        return unknown(flow, node, {str(i): f for i, f in enumerate(found)})
    for other in found[1:]:
        flow.tie(found[0].ids, other.ids, f"its outputs meet others{where(node)} that cannot be cut with them")
    return found[0] if found else None
