"""Neurons that reach their consumers without a nonlinearity, as the values of attention: the SVD solves them exactly.

What a consumer makes of such neurons is a product of two weights, W_o W_v for each head. Of all products of a smaller
width, the truncated SVD is nearest to it, whichever neurons a cut would pick.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, fx

from ldrf.problem import Problem, reader_columns
from ldrf.tracing import operation

# Calls that move or mix positions alike for all neurons of a head.
NAMES = """
    view reshape _unsafe_view permute transpose t clone contiguous alias detach dropout expand unsqueeze squeeze
    _to_copy to mean sum avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d
    _adaptive_avg_pool2d upsample_nearest2d upsample_bilinear2d
"""
MOVES = {f"aten.{name}" for name in NAMES.split()}
PRODUCTS = {"aten.bmm", "aten.matmul"}
ATTENTION = "aten.scaled_dot_product_attention"
Parts = tuple[Tensor, tuple[Tensor, ...]]  # heads' outputs of the producer [h, n] and inputs of each consumer [h, n]


def truncated_product(values: Tensor, outputs: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """The nearest product of this rank to ``outputs`` [o, n] @ ``values`` [n, d]: factors [rank, d] and [o, rank]."""
    left, upper = torch.linalg.qr(outputs.double())
    right, lower = torch.linalg.qr(values.double().T)
    u, s, v = torch.linalg.svd(upper @ lower.T, full_matrices=False)
    scale = s[:rank].sqrt()
    new_values = torch.zeros(rank, values.shape[1], dtype=torch.float64)
    new_outputs = torch.zeros(outputs.shape[0], rank, dtype=torch.float64)
    new_values[: len(scale)] = scale[:, None] * (v[:rank] @ right.T)
    new_outputs[:, : len(scale)] = (left @ u[:, :rank]) * scale
    return new_values, new_outputs


def linear_parts(problem: Problem) -> Parts | None:
    """Which outputs and inputs make up each head, where everything in between is linear and alike for its neurons."""
    unit = problem.unit
    if unit.partners or unit.slices or unit.producer.groups > 1 or not _is_linear(problem):
        return None
    rows = _by_neuron(unit.rows, unit.width)
    columns = [_by_neuron(consumer.channels, unit.width) for consumer in unit.consumers]
    if rows is None or (unit.rows < 0).any() or any(c is None or len(c) != len(rows) for c in columns):
        return None
    return rows, tuple(c for c in columns if c is not None)


def _is_linear(problem: Problem) -> bool:
    own = {problem.unit.producer.node, problem.unit.producer.result}
    for node in problem.path:
        read = [n.name in own for n in node.all_input_nodes]
        mixes = operation(node) in PRODUCTS and sum(read) == 1
        attends = operation(node) == ATTENTION and sum(read) == 1 and _name(node.args[2]) in own
        if not (operation(node) in MOVES or mixes or attends):
            return False
        own.add(node.name)
    return True


def _name(value: Any) -> str:
    return value.name if isinstance(value, fx.Node) else ""


def _by_neuron(ids: np.ndarray, width: int) -> Tensor | None:
    """Places of each neuron [places per neuron, width], or None where some have more than others."""
    found = [(ids == neuron).nonzero()[0] for neuron in range(width)]
    if len({len(places) for places in found}) > 1:
        return None
    return torch.as_tensor(np.stack(found, axis=1))


def low_rank_solution(
    problem: Problem, parts: Parts, readers: tuple[Tensor, ...]
) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """Weight and bias of the producer and matrices of the consumers that are nearest in every head's product.

    ``readers`` are the matrices [d' + 1, o] of a plain cut, of which the columns of other units and the constants stay.
    """
    unit, kept, slim = problem.unit, problem.kept, problem.walk.slim
    weight, bias = slim.affine(unit.producer.node)
    stacked = torch.cat([weight.flatten(1), bias[:, None]], 1)  # the bias is one more input
    made, found = stacked[problem.rows].double(), [reader.clone() for reader in readers]
    whole = [_matrix(problem, i) for i in range(len(unit.consumers))]
    for head, rows in enumerate(parts[0]):
        columns = [c[head] for c in parts[1]]
        stack = [m[:, c].transpose(1, 2).flatten(0, 1) for m, c in zip(whole, columns, strict=True)]  # [o * taps, n]
        values, outputs = truncated_product(stacked[rows], torch.cat(stack), len(kept))
        made[torch.searchsorted(problem.rows, rows[kept])] = values
        at = 0
        for i, (matrix, own) in enumerate(zip(whole, columns, strict=True)):
            taps = matrix.shape[2]
            part = outputs[at : at + matrix.shape[0] * taps].unflatten(0, (-1, taps))  # [o, taps, n']
            places = (own[kept][:, None] * taps + torch.arange(taps)).flatten()
            index = torch.searchsorted(reader_columns(unit.consumers[i], kept), places)
            found[i][index] = part.permute(2, 1, 0).flatten(0, 1)
            at += matrix.shape[0] * taps
    new = made.float()
    return new[:, :-1].reshape(len(new), *weight.shape[1:]), new[:, -1], tuple(found)


def _matrix(problem: Problem, i: int) -> Tensor:
    """A consumer's weight [o, inputs, taps] with the outputs that are left."""
    consumer = problem.unit.consumers[i]
    weight, _ = problem.walk.slim.affine(consumer.layer.node)
    weight = weight if consumer.outputs_now is None else weight[torch.as_tensor(consumer.outputs_now)]
    return weight.flatten(2) if weight.ndim > 2 else weight[..., None]
