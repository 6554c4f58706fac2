"""What each neuron adds to a consumer's output, Z_i = X_i W_i: all inner products from the rows' Gram matrix.

X_i [rows, g] are the columns of the consumer's input rows that belong to neuron i, W_i [g, o] its weights on them. With
G = X^T X the products are <Z_i, Z_j> = tr(W_i^T G_ij W_j): the sum of block (i, j) of G * (W W^T), entry by entry. So
Z itself, rows * o numbers a neuron, is never made, and all sampled rows count.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ldrf.algebra.moments import Moments
from ldrf.reconstruction.problem import Problem
from ldrf.reconstruction.refitting import moments_on
from ldrf.runtime.device import exact
from ldrf.units.columns import neuron_columns


@dataclass(frozen=True)
class Contributions:
    """Means over rows of <Z_i, Z_j> [n, n] and of <Z_i, T> [n], in float64."""

    gram: Tensor
    cross: Tensor


def contributions(problem: Problem, seed: int, centred: bool) -> list[Contributions]:
    """Contributions to each consumer in the slim network, T being what the consumer should give (dense).

    ``problem`` has all neurons. T comes without the consumer's bias and what it reads of other units; ``centred``
    leaves out means as well, where the consumer can add a constant and a later fit will find it.
    """
    slim, unit = problem.walk.slim, problem.unit
    moments = moments_on(problem, False, *slim.affine(unit.producer.node), seed)
    per_consumer = []
    for consumer, sums in zip(unit.consumers, moments, strict=True):
        weight, bias = slim.affine(consumer.layer.node)
        constant = None if centred and consumer.layer.has_bias else bias
        per_consumer.append(from_moments(sums, weight.flatten(1).T, constant, neuron_columns(consumer, unit.width)))
    return per_consumer


def from_moments(moments: Moments, weight: Tensor, constant: Tensor | None, groups: Tensor) -> Contributions:
    """From sums over rows, W [d, o], the bias [o] (None: means left out) and the columns of each neuron [n, g].

    Columns of no neuron are taken off the target; -1 in ``groups`` stands for a column that is not there.
    """
    n, g = groups.shape
    d, flat, weight = len(weight), groups.reshape(-1), exact(weight)
    gram, cross, sums = moments.gram[:d, :d], moments.cross[:d], moments.gram[:d, d]
    if constant is None:
        gram = gram - torch.outer(sums, sums) / moments.rows
        cross = cross - torch.outer(sums, moments.cross[d]) / moments.rows
    else:
        cross = cross - torch.outer(sums, exact(constant))
    others = torch.ones(d + 1, dtype=torch.bool).index_fill(0, flat % (d + 1), False)[:d]
    cross = cross - gram[:, others] @ weight[others]
    products = F.pad(gram * (weight @ weight.T), (0, 1, 0, 1))  # -1 points at the zeros behind
    along = F.pad((weight * cross).sum(1), (0, 1))
    blocks = products[flat][:, flat].view(n, g, n, g).sum((1, 3))
    return Contributions(blocks / moments.rows, along[flat].view(n, g).sum(1) / moments.rows)


def total(parts: list[Contributions]) -> Contributions:
    """Over all consumers, for a choice that serves them together."""
    return Contributions(torch.stack([c.gram for c in parts]).sum(0), torch.stack([c.cross for c in parts]).sum(0))
