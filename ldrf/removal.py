"""Second-order neuron removal: the error of a layer at every width of its input, from one Gram matrix.

Optimal Brain Surgeon on groups of columns: removing neuron g costs tr(B_g^T (H^-1_gg)^-1 B_g) when the
remaining weights take over its work by least squares. Several neurons go at a time in wide layers.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ldrf.rows import Moments, damped_factor


@dataclass(frozen=True)
class Removal:
    """``order``: neurons from first to last removed. ``errors[w]``: squared error when w neurons are kept."""

    order: Tensor  # [n]
    errors: Tensor  # [n + 1], relative to the variance of the consumer's output

    def kept(self, width: int) -> Tensor:
        return self.order[len(self.order) - width :].sort().values


@dataclass
class _Reader:
    """One consumer during removal: inverse Gram matrix and weights, neuron-major, cut neurons zeroed."""

    inverse: Tensor
    weights: Tensor
    size: int  # columns per neuron


def removal_order(readers: list[tuple[Moments, Tensor, Tensor]], damping: float, rounds: int = 48) -> Removal:
    """Remove neurons cheapest first, all consumers together; few at a time in wide layers, singly in narrow ones.

    Each reader is (moments of its inputs, dense weight [d, o], columns [n, g] of each neuron, -1 where it has fewer).
    """
    n = len(readers[0][2])
    prepared = [_prepare(*reader, damping) for reader in readers]
    states, variance = [state for state, _ in prepared], sum(spread for _, spread in prepared)
    alive = torch.arange(n)  # neurons the states still hold
    gone = torch.zeros(n, dtype=torch.bool)  # which of those are cut already
    order: list[Tensor] = []
    errors = torch.zeros(n + 1, dtype=torch.float64)
    total = 0.0
    while (left := int((~gone).sum())) > 0:
        cost = sum((_costs(s) for s in states), torch.zeros(len(alive), dtype=torch.float64))
        cost[gone] = torch.inf
        chosen = cost.argsort()[: max(1, left // rounds)]
        for i, step in enumerate(cost[chosen].clamp_min(0).tolist()):
            total += step
            errors[left - i - 1] = total
        order.append(alive[chosen])
        gone[chosen] = True
        for state in states:
            _eliminate(state, chosen)
        if int(gone.sum()) * 3 > len(gone):  # a smaller matrix pays for the copy it takes
            for state in states:
                _compact(state, ~gone)
            alive, gone = alive[~gone], gone[~gone]
    return Removal(torch.cat(order), errors / variance)


def _prepare(moments: Moments, weight: Tensor, groups: Tensor, damping: float) -> tuple[_Reader, float]:
    d = len(moments.gram) - 1
    mean = moments.gram[:d, d] / moments.rows
    # The bias absorbs the mean, so only the centred Gram matrix counts.
    centred = (moments.gram[:d, :d] - moments.rows * torch.outer(mean, mean)) / moments.rows
    flat = groups.reshape(-1)
    hessian, weights = centred[flat][:, flat], weight.double()[flat]
    absent = flat < 0
    if absent.any():  # stand-ins that nothing reads
        hessian[absent], hessian[:, absent], weights[absent] = 0.0, 0.0, 0.0
        hessian[absent, absent] = max(float(hessian.diagonal()[~absent].mean()), 1e-12)
    variance = float((weights * (hessian @ weights)).sum()) + 1e-30
    return _Reader(torch.cholesky_inverse(damped_factor(hessian, damping)), weights, groups.shape[1]), variance


def _costs(state: _Reader) -> Tensor:
    """Error the removal of each neuron would add [held]."""
    g, n = state.size, len(state.weights) // state.size
    blocks = state.inverse.view(n, g, n, g).diagonal(dim1=0, dim2=2).permute(2, 0, 1)  # [n, g, g]
    parts = state.weights.view(n, g, -1)
    if g == 1:
        return parts.square().sum((1, 2)) / blocks.reshape(-1).clamp_min(1e-30)
    return (parts * torch.linalg.solve(blocks, parts)).sum((1, 2))


def _eliminate(state: _Reader, chosen: Tensor) -> None:
    """Cut neurons and let the rest take over: B -= H^-1_.g (H^-1_gg)^-1 B_g, and H^-1 likewise."""
    columns = (chosen[:, None] * state.size + torch.arange(state.size)).flatten()
    cross = state.inverse[:, columns]
    block = cross[columns]
    state.weights.sub_(cross @ torch.linalg.solve(block, state.weights[columns]))
    state.inverse.sub_(cross @ torch.linalg.solve(block, cross.T))
    # Their own rows are zero now; a unit diagonal keeps later solves regular.
    state.weights[columns] = 0
    state.inverse[columns] = 0
    state.inverse[:, columns] = 0
    state.inverse[columns, columns] = 1


def _compact(state: _Reader, held: Tensor) -> None:
    index = held.repeat_interleave(state.size).nonzero().flatten()
    state.inverse = state.inverse[index][:, index].contiguous()
    state.weights = state.weights[index]
