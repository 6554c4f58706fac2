"""Neurons that reach their consumers without a nonlinearity, as the values of attention: the SVD solves them exactly.

A consumer's output is then a product of two weights, W_o W_v for each head. Of all products of a smaller width, the
truncated SVD is nearest to it, whichever neurons a cut would pick. The same holds for the scores of queries and keys
(``channels/attention_scores.py``), whose sums over the data are taken here.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx

from ldrf.channels.attention_scores import Scores, Sums, rotated_layers
from ldrf.channels.products import ATTENTION
from ldrf.reconstruction.problem import Problem, apply_affine, kept_outputs, precision_of
from ldrf.reconstruction.solution import Solution
from ldrf.runtime.device import exact, exact_device, single
from ldrf.runtime.processes import sum_over
from ldrf.tracing.operations import operation
from ldrf.tracing.operator_table import operator_of
from ldrf.tracing.patches import output_rows
from ldrf.units.columns import reader_columns
from ldrf.units.unit import Unit

Parts = tuple[Tensor, tuple[Tensor, ...]]  # heads' outputs of the producer [h, n] and inputs of each consumer [h, n]


def truncated_product(values: Tensor, outputs: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """The nearest product of this rank to ``outputs`` [o, n] @ ``values`` [n, d]: factors [rank, d] and [o, rank]."""
    left, upper = torch.linalg.qr(exact(outputs))
    right, lower = torch.linalg.qr(exact(values).T)
    u, s, v = torch.linalg.svd(upper @ lower.T, full_matrices=False)
    scale = s[:rank].sqrt()
    new_values = left.new_zeros(rank, values.shape[1])
    new_outputs = left.new_zeros(outputs.shape[0], rank)
    new_values[: len(scale)] = scale[:, None] * (v[:rank] @ right.T)
    new_outputs[:, : len(scale)] = (left @ u[:, :rank]) * scale
    return new_values, new_outputs


def svd_solution(problem: Problem, cut: Solution) -> Solution | None:
    """The plain cut with the SVD of products of two weights: of queries and keys, of values and their consumers.

    None where the unit has neither.
    """
    scores, parts, solution = problem.unit.compared, linear_parts(problem), cut
    outputs = kept_outputs(problem)
    if scores is not None and outputs.keys() >= set(scores.layers):
        whole = rotated_layers(problem.walk.slim, scores, score_sums(problem, scores), problem.kept, shrinks=True)
        own = {node: tuple(t[outputs[node]] for t in affine) for node, affine in whole.items()}
        weight, bias = own.pop(problem.unit.producer.node, (cut.weight, cut.bias))
        solution = replace(cut, weight=weight, bias=bias, partners={**cut.partners, **own})
    if parts is not None:
        solution = low_rank_solution(problem, parts, solution)
    return None if solution is cut else solution


def linear_parts(problem: Problem) -> Parts | None:
    """Which outputs and inputs make up each head, where everything in between is linear and alike for its neurons."""
    unit = problem.unit
    if unit.partners or unit.slices or unit.producer.groups > 1 or not _is_linear(problem):
        return None
    outputs = _value_outputs(unit)
    inputs = [_by_neuron(consumer.channels, unit.width) for consumer in unit.consumers]
    if outputs is None or (unit.neuron_of_output < 0).any() or any(i is None or len(i) != len(outputs) for i in inputs):
        return None
    return outputs, tuple(i for i in inputs if i is not None)


def _value_outputs(unit: Unit) -> Tensor | None:
    """Outputs of the producer that make up each head [h, n], without those that are queries or keys."""
    outputs = _by_neuron(unit.neuron_of_output, unit.width)
    if outputs is None or not unit.scores:
        return outputs
    if unit.compared is None or unit.compared.heads is None:
        return None
    return outputs[~torch.isin(outputs[:, 0], torch.cat(unit.compared.heads))]


def _is_linear(problem: Problem) -> bool:
    """Whether all calls that the neurons pass through are linear in them and treat them alike."""
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
    places = [(ids == neuron).nonzero()[0] for neuron in range(width)]
    if len({len(own) for own in places}) > 1:
        return None
    return torch.as_tensor(np.stack(places, axis=1))


def low_rank_solution(problem: Problem, parts: Parts, cut: Solution) -> Solution:
    """The producer and the consumers that are nearest in every head's product, from those of a plain cut.

    What is no value stays as it was cut, and so do the consumers' columns of other units and their constants.
    """
    unit, kept, slim = problem.unit, problem.kept, problem.walk.slim
    weight, bias = slim.affine(unit.producer.node)
    stacked = torch.cat([weight.flatten(1), bias[:, None]], 1)  # the bias is one more input
    made = exact(torch.cat([cut.weight.flatten(1), cut.bias[:, None]], 1))
    readers = [reader.clone() for reader in cut.readers]
    whole = [_matrix(problem, i) for i in range(len(unit.consumers))]
    for head, outputs in enumerate(parts[0]):
        inputs = [i[head] for i in parts[1]]
        stack = [m[:, i].transpose(1, 2).flatten(0, 1) for m, i in zip(whole, inputs, strict=True)]  # [o * taps, n]
        values, read = truncated_product(stacked[outputs], torch.cat(stack), len(kept))
        made[torch.searchsorted(problem.outputs, outputs[kept])] = values
        own = read.split([len(part) for part in stack])
        for i, consumer in enumerate(unit.consumers):
            taps = whole[i].shape[2]
            part = own[i].unflatten(0, (-1, taps))  # [o, taps, n']
            places = (inputs[i][kept][:, None] * taps + torch.arange(taps)).flatten()
            index = torch.searchsorted(reader_columns(consumer, kept), places)
            readers[i][index] = part.permute(2, 1, 0).flatten(0, 1)
    new = single(made, weight)
    weight, bias = new[:, :-1].reshape(len(new), *weight.shape[1:]), new[:, -1]
    return replace(cut, weight=weight, bias=bias, readers=tuple(readers))


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
    for node, outputs in zip(scores.layers, scores.heads, strict=True):
        layer = next(la for la in problem.trace.layers if la.node == node)
        role, name = ("input", "") if node == problem.unit.producer.node else ("partner input", node)
        size, there = outputs.shape[1], exact_device(walk.slim.device)
        total = torch.zeros(len(outputs), size, size, dtype=torch.float64, device=there)
        for chunk in walk.calibration.own(walk.calibration.fitting):
            x = problem.stored(chunk, role, name)
            with precision_of(problem):
                made = output_rows(layer, apply_affine(layer, x, *walk.slim.affine(node)), None)
            made = made.view(len(x), -1, layer.outputs)
            made = made - made.mean(1, keepdim=True) if totals else made  # a constant in the keys cancels
            parts = exact(made.flatten(0, 1)[:, outputs].transpose(0, 1))  # [h, rows, n]
            total += parts.mT @ parts
        totals.append(sum_over(total))
    return totals[0], totals[1]
