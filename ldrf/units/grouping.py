"""Layers grouped into units by where their channels go; what is not understood is left alone, with the reason."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from torch import fx

from ldrf.channels.attention_scores import Scores, readers_behind
from ldrf.channels.walk import FIXED, Flow, Slice, layer_tensors
from ldrf.tracing.operator_table import kind_of
from ldrf.tracing.patches import COLUMNS, count_columns
from ldrf.tracing.trace import Layer, Trace
from ldrf.units.unit import Consumer, Skipped, Unit, row_slices, tied

Item = TypeVar("Item")


@dataclass(frozen=True)
class Grouping:
    """Units of inner widths, units of coupled widths (residual streams), and the layers that belong to none."""

    units: tuple[Unit, ...]
    coupled: tuple[Unit, ...]
    skipped: tuple[Skipped, ...]


@dataclass(frozen=True)
class _Family:
    """Layers whose outputs share neurons: their place in the list of families and the neurons' roots in order."""

    place: int
    layers: tuple[Layer, ...]
    roots: np.ndarray


@dataclass(frozen=True)
class _Map:
    """For every channel id: the family it belongs to and its neuron there."""

    family: np.ndarray
    neuron: np.ndarray

    def local(self, ids: np.ndarray, family: int) -> np.ndarray:
        """Neurons of one family behind ``ids``, -1 for all others."""
        mine = (ids >= 0) & (self.family[ids] == family)
        return np.where(mine, self.neuron[ids], FIXED)

    def families(self, ids: np.ndarray) -> list[int]:
        return np.unique(self.family[ids[ids >= 0]]).tolist()


@dataclass(frozen=True)
class _Facts:
    """What the walk found, by the family it belongs to; ids are neurons of that family."""

    readers: Mapping[int, list[tuple[Layer, np.ndarray]]]
    scores: Mapping[int, list[Scores]]
    slices: Mapping[int, list[Slice]]
    frozen: Mapping[int, list[str]]  # reasons to keep the width
    stated: Mapping[int, list[tuple[str, int]]]  # (module, size) of calls that write the width out
    tables: Mapping[int, list[str]]  # embeddings
    work: Mapping[int, float]
    summed: frozenset[int]  # families that meet others in a sum


def units_of(flow: Flow) -> Grouping:
    """Group the layers of a network into units by where their channels go; what is not understood is skipped."""
    families = _families(flow)
    where = _map(flow, families)
    facts = _facts(flow, where)
    units: list[Unit] = []
    skipped: list[Skipped] = []
    for family in families:
        reason = _reason(flow.trace, family, facts)
        if reason:
            skipped += [Skipped(layer.name, _reason_of(layer, family, reason)) for layer in family.layers]
        else:
            rows = [where.local(flow.produced[layer.node], family.place) for layer in family.layers]
            units.append(_unit(flow.trace, family, rows, facts))
    units.sort(key=lambda u: u.start)
    inner, coupled = ([u for u in units if u.coupled is kind] for kind in (False, True))
    return Grouping(tuple(inner), tuple(coupled), tuple(skipped))


def _facts(flow: Flow, where: _Map) -> _Facts:
    scores = _by_family(where, flow.compared)
    slices = _by_family(where, ((piece, piece.ids) for piece in flow.slices))
    frozen = _by_family(where, ((reason, ids) for ids, reason in flow.frozen))
    stated = _by_family(where, (((module, size), ids) for module, size, ids in flow.stated))
    work = _by_family(where, flow.work)
    return _Facts(
        readers=_readers(flow, where),
        scores=_items(scores),
        slices={family: [replace(piece, ids=ids) for piece, ids in own] for family, own in slices.items()},
        frozen=_items(frozen),
        stated=_items(stated),
        tables=_items(_by_family(where, flow.tables)),
        # Families that are joined have a share each.
        work={family: sum((macs * float((ids >= 0).mean()) for macs, ids in own), 0.0) for family, own in work.items()},
        summed=frozenset(family for ids in flow.summed for family in where.families(ids)),
    )


def _by_family(where: _Map, pairs: Iterable[tuple[Item, np.ndarray]]) -> dict[int, list[tuple[Item, np.ndarray]]]:
    """What belongs to each family, with the family's own neurons in place of channel ids."""
    own: dict[int, list[tuple[Item, np.ndarray]]] = defaultdict(list)
    for item, ids in pairs:
        for family in where.families(ids):
            own[family].append((item, where.local(ids, family)))
    return own


def _items(own: Mapping[int, list[tuple[Item, np.ndarray]]]) -> dict[int, list[Item]]:
    return {family: [item for item, _ in pairs] for family, pairs in own.items()}


def _readers(flow: Flow, where: _Map) -> dict[int, list[tuple[Layer, np.ndarray]]]:
    """Layers that read a family's neurons, and the neuron behind each input.

    Queries and keys end in their scores, and others in the gates of a recurrent layer. The layers behind these read
    none of the neurons, and their outputs are what a cut has to restore.
    """
    readers = _by_family(where, flow.consumed)
    ends = [*((scores.node, ids) for scores, ids in flow.compared), *flow.gated]
    for node, ids in ends:
        for family in where.families(ids):
            own = readers.setdefault(family, [])
            known = {layer.node for layer, _ in own}
            behind = (layer for layer in readers_behind(flow.trace, node) if layer.node not in known)
            own += [(layer, np.full(layer.inputs, FIXED)) for layer in behind]
    return readers


def _families(flow: Flow) -> list[_Family]:
    """Layers in forward order, those that share a neuron in one family."""
    by_node = {layer.node: layer for layer in flow.trace.layers}
    owner: dict[int, int] = {}  # root -> first layer that makes it
    parents = list(range(len(flow.produced)))

    def top(i: int) -> int:
        while parents[i] != i:
            parents[i] = parents[parents[i]]
            i = parents[i]
        return i

    made = [(by_node[node], flow.roots(ids)) for node, ids in flow.produced.items()]
    for i, (_, roots) in enumerate(made):
        for root in roots.tolist():
            parents[top(i)] = top(owner.setdefault(root, i))
    members: dict[int, list[int]] = defaultdict(list)
    for i in range(len(made)):
        members[top(i)].append(i)
    families = []
    for place, group in enumerate(sorted(members.values())):
        roots = dict.fromkeys(root for i in group for root in made[i][1].tolist())
        families.append(_Family(place, tuple(made[i][0] for i in group), np.array(list(roots))))
    return families


def _map(flow: Flow, families: list[_Family]) -> _Map:
    count = len(flow.parents)
    family, neuron = np.full(count, FIXED), np.full(count, FIXED)
    for group in families:
        family[group.roots], neuron[group.roots] = group.place, np.arange(len(group.roots))
    roots = flow.roots(np.arange(count))
    return _Map(family[roots], neuron[roots])


def _reason(trace: Trace, family: _Family, facts: _Facts) -> str | None:
    """Why these layers' outputs must keep their number, or None."""
    for layer in family.layers:
        shared = _shared(trace, layer_tensors(layer))
        if shared:
            return f"its tensor '{shared}' is used by more than one call"
    readers = [layer for layer, _ in facts.readers.get(family.place, ())]
    frozen = facts.frozen.get(family.place)
    return (
        (frozen[0] if frozen else None)
        or _reason_of_readers(trace, readers)
        or _reason_of_slices(trace, facts.slices.get(family.place, []))
        or _reason_of_width(family, readers)
    )


def _reason_of_readers(trace: Trace, readers: list[Layer]) -> str | None:
    for reader in readers:
        if _shared(trace, layer_tensors(reader)):
            return f"'{reader.name}', which reads its outputs, is called more than once or shares its weights"
    return None


def _reason_of_slices(trace: Trace, slices: list[Slice]) -> str | None:
    shared = _unequally_cut(trace, slices)
    return f"its outputs meet the tensor '{shared}', which is used by more than one call" if shared else None


def _reason_of_width(family: _Family, readers: list[Layer]) -> str | None:
    wide = next((reader for reader in readers if count_columns(reader) > COLUMNS), None)
    if wide:
        return (
            f"'{wide.name}', which reads its outputs, has {count_columns(wide):,} weights per output: "
            f"least squares is done on up to {COLUMNS:,}"
        )
    if max(layer.outputs for layer in family.layers) < 2:
        return "it has a single output"
    if len(family.roots) < 2:
        return "all of its outputs are tied to each other"
    return None if readers else "no layer reads its outputs"


def _reason_of(layer: Layer, family: _Family, reason: str) -> str:
    """A family's reason as it is given for one of its layers."""
    others = [other.name for other in family.layers if other.name != layer.name]
    return f"{tied(others[0])}, and that cannot be cut: {reason}" if others else reason


def _shared(trace: Trace, tensors: list[str]) -> str | None:
    """The first of these tensors that more than one call uses."""
    return next((name for name in tensors if trace.called.get(name, 1) > 1), None)


def _unequally_cut(trace: Trace, slices: list[Slice]) -> str | None:
    """The first tensor that is not cut in the same way in every call that uses it."""
    calls: dict[str, list[Slice]] = defaultdict(list)
    for piece in slices:
        calls[piece.tensor].append(piece)
    for name, cuts in calls.items():
        if trace.called.get(name, 1) != len(cuts) or not all(_is_same_cut(cuts[0], piece) for piece in cuts):
            return name
    return None


def _is_same_cut(one: Slice, other: Slice) -> bool:
    return one.dim == other.dim and np.array_equal(one.ids, other.ids)


def _unit(trace: Trace, family: _Family, rows: list[np.ndarray], facts: _Facts) -> Unit:
    place, (producer, *partners) = family.place, family.layers
    consumers = tuple(_consumer(trace, reader, channels) for reader, channels in facts.readers.get(place, ()))
    carried = facts.slices.get(place, [])
    partner_slices = (row_slices(layer, own) for layer, own in zip(partners, rows[1:], strict=True))
    slices = (*carried, *(piece for pieces in partner_slices for piece in pieces))
    tables = tuple(facts.tables.get(place, ()))
    return Unit(
        name=producer.name,
        width=len(family.roots),
        producer=producer,
        consumers=consumers,
        slices=slices,
        start=min([trace.index(producer.node), *(trace.first_calls[piece.tensor] for piece in slices)]),
        end=max([trace.index(producer.result), *(trace.index(c.goal) for c in consumers)]),
        neuron_of_output=rows[0],
        partners=tuple(partners),
        tables=tables,
        coupled=len(family.layers) + len(tables) > 1 and place in facts.summed,
        work=facts.work.get(place, 0.0),
        stated=tuple(dict.fromkeys(facts.stated.get(place, ()))),
        scores=tuple(facts.scores.get(place, ())),
    )


def _consumer(trace: Trace, reader: Layer, channels: np.ndarray) -> Consumer:
    other, summed = _residual(trace, reader)
    return Consumer(reader, channels, other, summed, activation_behind(trace, summed or reader.result))


def _residual(trace: Trace, layer: Layer) -> tuple[str | None, str | None]:
    """The other operand and the node of the sum that alone reads ``layer``'s output, if it closes a branch."""
    result = trace.node(layer.result)
    users = list(result.users)
    if len(users) != 1 or str(users[0].target) != "aten.add.Tensor" or len(users[0].args) != 2:
        return None, None
    others = [a for a in users[0].args if a is not result]
    other = others[0] if len(others) == 1 else None
    if not isinstance(other, fx.Node) or other.op == "placeholder":
        return None, None
    if other.meta["val"].shape != result.meta["val"].shape:
        return None, None
    return other.name, users[0].name


def activation_behind(trace: Trace, name: str) -> str | None:
    """The activation that alone reads the value ``name``, if there is one."""
    users = list(trace.node(name).users)
    if len(users) == 1 and kind_of(users[0]) == "activation" and len(users[0].all_input_nodes) == 1:
        return users[0].name
    return None
