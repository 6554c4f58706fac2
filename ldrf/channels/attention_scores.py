"""Queries and keys of attention: all that comes of them are the scores q k^T of every head.

A head's queries and keys can be rotated into another basis, and its scores stay the same. Of all scores of a smaller
width, those of the truncated SVD are nearest. So a cut first rotates, and then takes the last directions away.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx

from ldrf.runtime.device import exact, single
from ldrf.tracing.interpreter import Weights, run
from ldrf.tracing.operator_table import kind_of
from ldrf.tracing.trace import Layer, Trace

Affine = dict[str, tuple[Tensor, Tensor]]  # layer node -> weight and bias
Sums = tuple[Tensor, Tensor]  # q^T q and k^T k of every head [h, n, n]


@dataclass(frozen=True)
class Scores:
    """A call that compares the outputs of two layers, which may be one and the same."""

    node: str
    query: str  # the value whose last dimension is compared
    key: str  # with the last dimension of this one, or the last but one where keys come transposed
    key_is_transposed: bool
    rescales: bool  # the call divides scores by the root of the width it finds
    layers: tuple[str, str]  # nodes of the layers that make the queries and the keys
    heads: tuple[Tensor, Tensor] | None = None  # outputs of the two that make up each head [h, n], where known


def layer_behind(trace: Trace, node: fx.Node) -> tuple[Layer, list[fx.Node]] | None:
    """The layer whose output this value is, moved about and scaled as a whole, and the calls that do so, last first."""
    made = {layer.result: layer for layer in trace.layers if layer.groups == 1}
    way: list[fx.Node] = []
    while node.name not in made:
        read = [n for n in node.all_input_nodes if isinstance(n.meta.get("val"), Tensor | list | tuple)]
        if kind_of(node) not in ("moves", "scales") or len(read) != 1:
            return None
        way.append(node)
        node = read[0]
    return made[node.name], way


def readers_behind(trace: Trace, name: str) -> list[Layer]:
    """The first layers that read all of what comes out of a call, in forward order; those in groups carry it on."""
    layers = {layer.node: layer for layer in trace.layers if layer.groups == 1}
    seen, waiting, readers = {name}, [trace.node(name)], set[str]()
    while waiting:
        for user in waiting.pop().users:
            if user.name in layers:
                readers.add(user.name)
            elif user.name not in seen:
                seen.add(user.name)
                waiting.append(user)
    return sorted((layers[node] for node in readers), key=lambda layer: trace.index(layer.node))


def with_heads(trace: Trace, values: Mapping[str, Any], scores: Scores) -> Scores:
    """The same with its heads: what is compared when every layer output carries its own number instead of a value.

    ``values`` are those of a run. Heads that share outputs, as those of grouped queries do, are not told apart.
    """
    query, key = (_numbered(trace, values, name) for name in (scores.query, scores.key))
    key = key.transpose(-1, -2) if scores.key_is_transposed else key
    if query.shape[:-2] != key.shape[:-2]:
        return scores
    pairs = torch.cat([part[..., 0, :].flatten(0, -2) for part in (query, key)], 1).unique(dim=0).long()
    heads = pairs.cpu().chunk(2, dim=1)
    owned = [pairs] if scores.layers[0] == scores.layers[1] else heads
    if any(len(part.unique()) < part.numel() for part in owned):
        return scores
    return replace(scores, heads=(heads[0], heads[1]))


def _numbered(trace: Trace, values: Mapping[str, Any], name: str) -> Tensor:
    """A value made of one layer's output, with the output's number in place of each entry."""
    origin = layer_behind(trace, trace.node(name))
    assert origin is not None  # the walk over the channels saw to it
    layer, way = origin
    shape = [1] * values[layer.result].ndim
    shape[layer.channel_dim] = layer.outputs
    result = values[layer.result]
    now: Any = torch.arange(layer.outputs, dtype=torch.float32, device=result.device).view(shape).expand_as(result)
    at = layer.result
    for node in reversed(way):
        if kind_of(node) != "scales":
            given = {n.name: values[n.name] for n in node.all_input_nodes if n.name in values} | {at: now}
            now = run(trace, Weights({}, {}, result.device), (node,), given)[node.name]
        at = node.name
    return now


@dataclass(frozen=True)
class Rotation:
    """Matrices [n', n] that make n' queries and keys of a head out of n, and the size of every direction [n]."""

    query: Tensor
    key: Tensor
    sizes: Tensor


def nearest_scores(queries: Tensor, keys: Tensor, width: int) -> Rotation:
    """The rotation after which ``width`` directions give the nearest scores.

    ``queries`` and ``keys`` [n, n] are sums of squares over the data, q^T q and k^T k. A constant in the keys adds the
    same to all scores of a query, which its softmax takes out again: leave their mean out.
    """
    left, right = _root(queries), _root(keys)
    u, sizes, v = torch.linalg.svd(left @ right)
    scale = torch.where(sizes > 1e-9 * sizes[0], sizes.clamp_min(1e-300).rsqrt(), 0)[:width, None]
    return Rotation(scale * (v[:width] @ right), scale * (u[:, :width].T @ left), sizes)


def rotated_layers(weights: Weights, scores: Scores, sums: Sums, kept: Tensor, shrinks: bool) -> Affine:
    """Both layers in full size, with the nearest scores in the ``kept`` rows of every head and zeros in its others.

    Where these rows go and the call divides by the root of the width (``shrinks``), queries make up for it.
    """
    assert scores.heads is not None
    factor = (len(kept) / scores.heads[0].shape[1]) ** 0.5 if shrinks and scores.rescales else 1.0
    rotated: dict[str, tuple[Tensor, Tensor]] = {}
    for head, (queries, keys) in enumerate(zip(*sums, strict=True)):
        rotation = nearest_scores(queries, keys, len(kept))
        matrices = factor * rotation.query, rotation.key
        for node, rows, matrix in zip(scores.layers, scores.heads, matrices, strict=True):
            weight, bias = rotated.get(node) or tuple(t.clone() for t in weights.affine(node))
            own = rows[head]
            new = single(matrix, weight) @ torch.cat([weight[own].flatten(1), bias[own, None]], 1)
            weight[own], bias[own] = 0.0, 0.0
            weight[own[kept]], bias[own[kept]] = new[:, :-1].view(len(kept), *weight.shape[1:]), new[:, -1]
            rotated[node] = weight, bias
    return rotated


def projected_queries(weights: Weights, scores: Scores, sums: Sums, width: int) -> Affine:
    """The layer of the queries with the nearest scores of so many directions per head; the keys stay as they are.

    The scores are those of :func:`rotated_layers`: (A q) (B k)^T = (B^T A q) k^T.
    """
    assert scores.heads is not None
    node = scores.layers[0]
    weight, bias = (t.clone() for t in weights.affine(node))
    for own, queries, keys in zip(scores.heads[0], *sums, strict=True):
        rotation = nearest_scores(queries, keys, width)
        matrix = single(rotation.key.T @ rotation.query, weight)
        weight[own], bias[own] = (matrix @ weight[own].flatten(1)).view_as(weight[own]), matrix @ bias[own]
    return {node: (weight, bias)}


def weight_sums(weights: Weights, scores: Scores) -> Sums:
    """Sums of squares of every head's queries and keys on inputs of mean 0 and variance 1."""
    assert scores.heads is not None
    (query, constant), (key, _) = (weights.affine(node) for node in scores.layers)
    made = [torch.cat([query.flatten(1), constant[:, None]], 1), key.flatten(1)]
    parts = [exact(layer[rows]) for layer, rows in zip(made, scores.heads, strict=True)]  # [h, n, d]
    return parts[0] @ parts[0].mT, parts[1] @ parts[1].mT


def score_errors(weights: Weights, scores: Scores) -> Tensor:
    """Share of the scores' squares that is lost at every width [n + 1], on such inputs."""
    sums = zip(*weight_sums(weights, scores), strict=True)
    sizes = sum(nearest_scores(queries, keys, len(keys)).sizes.square() for queries, keys in sums)
    left = torch.cat([torch.zeros(1, dtype=torch.float64), torch.as_tensor(sizes).cpu().cumsum(0)])
    return 1 - left / left[-1].clamp_min(1e-300)


def _root(matrix: Tensor) -> Tensor:
    """The symmetric square root of a matrix without negative eigenvalues."""
    values, vectors = torch.linalg.eigh(exact(matrix))
    return (vectors * values.clamp_min(0).sqrt()) @ vectors.T
