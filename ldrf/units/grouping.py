"""Layers grouped into units by where their channels go; what is not understood is left alone, with the reason."""

from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np

from ldrf.channels.attention_scores import Scores, readers_behind
from ldrf.channels.walk import FIXED, Flow, Slice, layer_tensors
from ldrf.tracing.operator_table import kind_of
from ldrf.tracing.patches import COLUMNS, count_columns
from ldrf.tracing.trace import Layer, Trace
from ldrf.units.unit import Consumer, Skipped, Unit, row_slices, tied


@dataclass(frozen=True)
class Found:
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


def units_of(flow: Flow) -> Found:
    """Group the layers of a network into units by where their channels go; what is not understood is skipped."""
    trace = flow.trace
    families = _families(flow)
    where = _map(flow, families)
    reading: dict[int, list[tuple[Layer, np.ndarray]]] = defaultdict(list)
    for reader, ids in flow.consumed:
        for family in where.families(ids):
            reading[family].append((reader, where.local(ids, family)))
    scores: dict[int, list[Scores]] = defaultdict(list)
    for found, ids in flow.compared:
        for family in where.families(ids):
            scores[family].append(found)
            read = {layer.node for layer, _ in reading[family]}
            behind = (layer for layer in readers_behind(trace, found.node) if layer.node not in read)
            reading[family] += [(layer, np.full(layer.inputs, FIXED)) for layer in behind]
    carrying: dict[int, list[Slice]] = defaultdict(list)
    for piece in flow.slices:
        for family in where.families(piece.ids):
            carrying[family].append(Slice(piece.tensor, piece.dim, where.local(piece.ids, family)))
    frozen: dict[int, str] = {}
    for ids, reason in flow.frozen:
        for family in where.families(ids):
            frozen.setdefault(family, reason)
    stated: dict[int, dict[tuple[str, int], None]] = defaultdict(dict)
    for module, size, ids in flow.stated:
        for family in where.families(ids):
            stated[family][module, size] = None
    tables: dict[int, list[str]] = defaultdict(list)
    for name, ids in flow.tables:
        for family in where.families(ids):
            tables[family].append(name)
    work: dict[int, float] = defaultdict(float)
    for macs, ids in flow.work:
        for family in where.families(ids):  # those of a join have a share each
            work[family] += macs * float((where.local(ids, family) >= 0).mean())
    summed = {family for ids in flow.summed for family in where.families(ids)}
    units, skipped = [], []
    for family in families:
        readers, slices, place = reading[family.place], carrying[family.place], family.place
        reason = _reason(trace, family, readers, slices, frozen.get(place))
        if reason:
            skipped += [Skipped(la.name, _told(family, la, reason)) for la in family.layers]
        else:
            rows = [where.local(flow.produced[la.node], place) for la in family.layers]
            coupled = len(family.layers) + len(tables[place]) > 1 and place in summed
            unit = _unit(trace, family, rows, readers, slices)
            unit = replace(unit, coupled=coupled, stated=tuple(stated[place]), scores=tuple(scores[place]))
            units.append(replace(unit, work=work[place], tables=tuple(tables[place])))
    units.sort(key=lambda u: u.start)
    inner, coupled = ([u for u in units if u.coupled is kind] for kind in (False, True))
    return Found(tuple(inner), tuple(coupled), tuple(skipped))


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


def _reason(
    trace: Trace, family: _Family, readers: list[tuple[Layer, np.ndarray]], slices: list[Slice], stopped: str | None
) -> str | None:
    """Why these layers' outputs must keep their number, or None."""
    for layer in family.layers:
        shared = _shared(trace, layer_tensors(layer))
        if shared:
            return f"its tensor '{shared}' is used by more than one call"
    if stopped:
        return stopped
    for reader, _ in readers:
        if _shared(trace, layer_tensors(reader)):
            return f"'{reader.name}', which reads its outputs, is called more than once or shares its weights"
    shared = _unequally_cut(trace, slices)
    if shared:
        return f"its outputs meet the tensor '{shared}', which is used by more than one call"
    wide = next((r for r, _ in readers if count_columns(r) > COLUMNS), None)
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


def _told(family: _Family, layer: Layer, reason: str) -> str:
    """A family's reason as told of one of its layers."""
    others = [la.name for la in family.layers if la.name != layer.name]
    return f"{tied(others[0])}, and that cannot be cut: {reason}" if others else reason


def _shared(trace: Trace, tensors: list[str]) -> str | None:
    """The first of these tensors that more than one call uses."""
    return next((name for name in tensors if trace.called.get(name, 1) > 1), None)


def _unequally_cut(trace: Trace, slices: list[Slice]) -> str | None:
    """The first of the tensors that some calls use otherwise than those which are cut with these channels."""
    calls: dict[str, list[Slice]] = defaultdict(list)
    for piece in slices:
        calls[piece.tensor].append(piece)
    alike = lambda a, b: a.dim == b.dim and np.array_equal(a.ids, b.ids)  # noqa: E731
    for name, found in calls.items():
        if trace.called.get(name, 1) != len(found) or not all(alike(found[0], piece) for piece in found):
            return name
    return None


def _unit(
    trace: Trace,
    family: _Family,
    rows: list[np.ndarray],
    readers: list[tuple[Layer, np.ndarray]],
    slices: list[Slice],
) -> Unit:
    producer, *partners = family.layers
    consumers, end = [], trace.index(producer.result)
    for reader, channels in readers:
        other, summed = _residual(trace, reader)
        activation = activation_behind(trace, summed or reader.result)
        consumers.append(Consumer(reader, channels, other, summed, activation))
        end = max(end, trace.index(summed or reader.result))
    for partner, own in zip(partners, rows[1:], strict=True):
        slices = [*slices, *row_slices(partner, own)]
    return Unit(
        name=producer.name,
        width=len(family.roots),
        producer=producer,
        consumers=tuple(consumers),
        slices=tuple(slices),
        start=min([trace.index(producer.node), *(trace.first_calls[piece.tensor] for piece in slices)]),
        end=end,
        rows=rows[0],
        partners=tuple(partners),
    )


def _residual(trace: Trace, layer: Layer) -> tuple[str | None, str | None]:
    """The other operand and the node of the sum that alone reads ``layer``'s output, if it closes a branch."""
    result = trace.node(layer.result)
    users = list(result.users)
    if len(users) != 1 or str(users[0].target) != "aten.add.Tensor" or len(users[0].args) != 2:
        return None, None
    others = [a for a in users[0].args if a is not result]
    if len(others) != 1 or not hasattr(others[0], "meta") or others[0].op == "placeholder":  # pyright: ignore
        return None, None
    if others[0].meta["val"].shape != result.meta["val"].shape:  # pyright: ignore
        return None, None
    return others[0].name, users[0].name  # pyright: ignore


def activation_behind(trace: Trace, name: str) -> str | None:
    """The activation that alone reads the value ``name``, if there is one."""
    users = list(trace.node(name).users)
    if len(users) == 1 and kind_of(users[0]) == "activation" and len(users[0].all_input_nodes) == 1:
        return users[0].name
    return None
