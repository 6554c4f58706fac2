"""Neurons that reach their consumers without a nonlinearity, as the values of attention: the SVD solves them exactly.

What a consumer makes of such neurons is a product of two weights, W_o W_v for each head. Of all products of a smaller
width, the truncated SVD is nearest to it, whichever neurons a cut would pick. So it is with the scores of queries and
keys (``scores.py``), whose sums over the data are found here.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, fx

from ldrf.channels.attention_scores import Scores, Sums
from ldrf.channels.products import ATTENTION
from ldrf.reconstruction.problem import Problem, apply_affine
from ldrf.runtime.processes import sum_over
from ldrf.tracing.operations import operation
from ldrf.tracing.operator_table import operator_of
from ldrf.tracing.patches import output_rows
from ldrf.units.columns import reader_columns
from ldrf.units.unit import Unit

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
    rows = _value_rows(unit)
    columns = [_by_neuron(consumer.channels, unit.width) for consumer in unit.consumers]
    if rows is None or (unit.rows < 0).any() or any(c is None or len(c) != len(rows) for c in columns):
        return None
    return rows, tuple(c for c in columns if c is not None)


def _value_rows(unit: Unit) -> Tensor | None:
    """Outputs of the producer that make up each head [h, n], without those that are queries or keys."""
    rows = _by_neuron(unit.rows, unit.width)
    if rows is None or not unit.scores:
        return rows
    if unit.compared is None or unit.compared.heads is None:
        return None
    return rows[~torch.isin(rows[:, 0], torch.cat(unit.compared.heads))]


def _is_linear(problem: Problem) -> bool:
    own = {problem.unit.producer.node, problem.unit.producer.result}
    scored = {scores.node for scores in problem.unit.scores}
    for node in problem.path:
        read = [n.name in own for n in node.all_input_nodes]
        fused = operation(node) == ATTENTION
        if not any(read) or (node.name in scored and not fused):
            continue  # what comes of queries and keys weighs the values, and is no neuron itself
        operator = operator_of(node)
        mixes = operator is not None and operator.kind == "product" and sum(read) == 1
        attends = fused and (sum(read) == 1 or node.name in scored) and _name(node.args[2]) in own
        if not ((operator and operator.is_linear) or mixes or attends):
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
    problem: Problem, parts: Parts, start: tuple[Tensor, Tensor, tuple[Tensor, ...]]
) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """Weight and bias of the producer and matrices of the consumers that are nearest in every head's product.

    ``start`` are those of a plain cut, consumers' as [d' + 1, o]: what is no value, the columns of other units and
    the constants stay.
    """
    unit, kept, slim = problem.unit, problem.kept, problem.walk.slim
    weight, bias = slim.affine(unit.producer.node)
    stacked = torch.cat([weight.flatten(1), bias[:, None]], 1)  # the bias is one more input
    made = torch.cat([start[0].flatten(1), start[1][:, None]], 1).double()
    found = [reader.clone() for reader in start[2]]
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


@torch.no_grad()
def score_sums(problem: Problem, scores: Scores) -> Sums:
    """Sums of squares of every head's queries, and of its keys about their mean in each image, in the slim network."""
    assert scores.heads is not None
    walk, totals = problem.walk, []
    for node, rows in zip(scores.layers, scores.heads, strict=True):
        layer = next(la for la in problem.trace.layers if la.node == node)
        key = ("input",) if node == problem.unit.producer.node else ("partner", node)
        total = torch.zeros(len(rows), rows.shape[1], rows.shape[1], dtype=torch.float64)
        for chunk in walk.calibration.own(walk.calibration.fitting):
            x = walk.store.get(("unit", chunk, *key))
            made = output_rows(layer, apply_affine(layer, x, *walk.slim.affine(node)), None)
            made = made.view(len(x), -1, layer.outputs)
            made = made - made.mean(1, keepdim=True) if totals else made  # a constant in the keys cancels
            parts = made.flatten(0, 1)[:, rows].transpose(0, 1).double()  # [h, rows, n]
            total += parts.mT @ parts
        totals.append(sum_over(total))
    return totals[0], totals[1]
