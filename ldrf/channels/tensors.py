"""Tensors of the model itself that meet channels: scales, class tokens, tables of positions, embeddings.

They have no inputs to be solved for; they are cut with the channels they meet, through whatever views lie between.
"""

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, fx

from ldrf.channels.flow import Channels, Flow, Slice
from ldrf.tracing.operator_table import kind_of, operator_of
from ldrf.tracing.trace import Layer

EMBEDDING = "aten.embedding"


def embedded(flow: Flow, node: fx.Node) -> Channels | None:
    """What an embedding looks up: its columns are channels, which are cut with those of the layers they meet."""
    table = node.args[0]
    if not isinstance(table, fx.Node) or table.name not in flow.trace.names or table.name in flow.trace.fixed:
        return None
    name, rank = flow.trace.names[table.name], node.meta["val"].ndim
    ids = flow.fresh(int(table.meta["val"].shape[1]))
    flow.slices.append(Slice(name, 1, ids))
    flow.tables.append((name.removesuffix(".weight"), ids))
    flow.cut_along[node.name] = name
    return Channels(rank - 1, ids)


def is_tied(flow: Flow, layer: Layer) -> bool:
    """Whether a layer reads with an embedding's own table, as heads of language models do: it is cut, not solved."""
    return any(layer.weight == f"{name}.weight" for name, _ in flow.tables) and not layer.is_transposed


def cut_along(flow: Flow, node: fx.Node, dim: int, ids: np.ndarray) -> bool:
    """Whether a value without channels is a tensor of the model that can be cut, so that its ``dim`` keeps to ``ids``.

    If so, that is noted. It may be computed value by value from several of them, as frozen norms are.
    """
    if node.name in flow.computed:
        known, same = flow.computed[node.name]
        return known == dim and np.array_equal(same, ids)
    if torch.Tag.pointwise in getattr(node.target, "tags", ()):
        return _computed(flow, node, dim, ids)
    way = _way(flow, node)
    if way is None:
        return False
    for start, size in enumerate(way[0].meta["val"].shape):
        if size == len(ids):
            trial = Flow(flow.trace)
            moved = _moved(trial, way, Channels(start, trial.fresh(len(ids))))
            if moved is not None and moved.dim == dim and (moved.ids == np.arange(len(ids))).all():
                _note(flow, trial, way, start, ids)
                return True
    return False


def _computed(flow: Flow, node: fx.Node, dim: int, ids: np.ndarray) -> bool:
    """Whether all operands of a function of single values can be cut, or are the same for all channels."""
    operands = [n for n in node.all_input_nodes if isinstance(n.meta.get("val"), Tensor)]
    places = [(n, dim - (node.meta["val"].ndim - n.meta["val"].ndim)) for n in operands]
    cut = [(n, at) for n, at in places if at >= 0 and n.meta["val"].shape[at] == len(ids)]
    others = [n for n in operands if n not in [operand for operand, _ in cut]]
    if not cut or any(n.name not in flow.trace.names for n in others):
        return False
    if not all(cut_along(flow, operand, at, ids) for operand, at in cut):
        return False
    flow.computed[node.name] = dim, ids
    first = cut[0][0].name
    flow.cut_along[node.name] = flow.trace.names.get(first) or flow.cut_along[first]
    return True


def _way(flow: Flow, node: fx.Node) -> list[fx.Node] | None:
    """The calls that lead from a tensor of the model to ``node``, that tensor first, if they only move it."""
    way = [node]
    while way[0].name not in flow.trace.names:
        source = way[0].args[0] if way[0].args else None
        if kind_of(way[0]) != "moves" or not isinstance(source, fx.Node) or len(way[0].users) > 1:
            return None
        if not isinstance(source.meta.get("val"), Tensor):
            return None
        way.insert(0, source)
    return None if way[0].name in flow.trace.fixed else way


def _moved(trial: Flow, way: list[fx.Node], given: Channels) -> Channels | None:
    """Where the dimension of ``given`` comes to lie at the end of the way, None where it does not stay whole."""
    moved = given
    for before, node in pairwise(way):
        operator, arriving = operator_of(node), {before.name: moved}
        result = operator.channels(trial, node, arriving) if operator else None
        if not isinstance(result, Channels):
            return None
        trial.note_dims(node, arriving, result)
        moved = result
    return None if trial.frozen else moved


def _note(flow: Flow, trial: Flow, way: list[fx.Node], dim: int, ids: np.ndarray) -> None:
    name = flow.trace.names[way[0].name]
    flow.slices.append(Slice(name, dim, ids))
    flow.stated += [(module, size, ids) for module, size, _ in trial.stated]
    flow.channel_dims |= trial.channel_dims
    for node in way[1:]:
        flow.cut_along[node.name] = name
