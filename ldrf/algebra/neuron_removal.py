"""Second-order neuron removal: the error of a layer at every width of its input, from one Gram matrix.

Optimal Brain Surgeon on groups of columns: removing neuron g costs tr(B_g^T (H^-1_gg)^-1 B_g) when the
remaining weights take over its work by least squares. In wide layers several neurons are removed at a time.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ldrf.algebra.moments import Moments, damped_factor, damped_inverse
from ldrf.runtime.device import exact


@dataclass(frozen=True)
class Removal:
    """``order``: neurons from first to last removed. ``errors[w]``: squared error when w neurons are kept."""

    order: Tensor  # [n]
    errors: Tensor  # [n + 1], relative to the variance of the consumer's output

    def kept(self, width: int) -> Tensor:
        """The ``width`` neurons that are removed last, in ascending order."""
        return self.order[len(self.order) - width :].sort().values


@dataclass
class _Reader:
    """One consumer during removal: inverse Gram matrix, its diagonal blocks and the weights, neuron-major.

    The inverse as it stands is ``inverse - done[:used].T @ done[:used]``: a removal adds rows to ``done`` and leaves
    the large matrix alone until a part of it can go (:func:`_compact`).
    """

    inverse: Tensor  # [d, d]
    blocks: Tensor  # [n, g, g], up to date
    weights: Tensor  # [d, o], up to date, cut neurons zeroed
    size: int  # columns per neuron
    done: Tensor  # [room, d]
    used: int = 0


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
        cost = sum((_costs(s).cpu() for s in states), torch.zeros(len(alive), dtype=torch.float64))
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
            states = [_compact(state, ~gone) for state in states]
            alive, gone = alive[~gone], gone[~gone]
    return Removal(torch.cat(order), errors / variance)


def _prepare(moments: Moments, weight: Tensor, groups: Tensor, damping: float) -> tuple[_Reader, float]:
    """A consumer before any removal, and the variance of its output."""
    d = len(moments.gram) - 1
    mean = moments.gram[:d, d] / moments.rows
    flat = groups.reshape(-1)
    weights, absent = exact(weight)[flat], flat < 0
    # The bias absorbs the mean, so only the centred Gram matrix counts.
    if moments.few is not None and not absent.any():
        rows = (moments.few[:, :d] - mean)[:, flat] / moments.rows**0.5
        variance = float((rows @ weights).square().sum()) + 1e-30
        return _fresh(damped_inverse(rows, damping), weights, groups.shape[1]), variance
    centred = (moments.gram[:d, :d] - moments.rows * torch.outer(mean, mean)) / moments.rows
    hessian = centred[flat][:, flat]
    if absent.any():  # columns that are not there
        hessian[absent], hessian[:, absent], weights[absent] = 0.0, 0.0, 0.0
        hessian[absent, absent] = max(float(hessian.diagonal()[~absent].mean()), 1e-12)
    variance = float((weights * (hessian @ weights)).sum()) + 1e-30
    return _fresh(torch.cholesky_inverse(damped_factor(hessian, damping)), weights, groups.shape[1]), variance


def _fresh(inverse: Tensor, weights: Tensor, size: int) -> _Reader:
    """A consumer whose inverse is up to date."""
    n = len(inverse) // size
    blocks = inverse.view(n, size, n, size).diagonal(dim1=0, dim2=2).permute(2, 0, 1).contiguous()
    return _Reader(inverse, blocks, weights, size, inverse.new_empty(0, len(inverse)))


def _costs(state: _Reader) -> Tensor:
    """Error the removal of each neuron would add [held]."""
    parts = state.weights.view(len(state.blocks), state.size, -1)
    if state.size == 1:
        return parts.square().sum((1, 2)) / state.blocks.reshape(-1).clamp_min(1e-30)
    return (parts * torch.linalg.solve(state.blocks, parts)).sum((1, 2))


def _eliminate(state: _Reader, chosen: Tensor) -> None:
    """Cut neurons and let the rest take over: B -= H^-1_.g (H^-1_gg)^-1 B_g, and H^-1 likewise."""
    columns = (chosen[:, None] * state.size + torch.arange(state.size)).flatten()
    done = state.done[: state.used]
    cross = state.inverse[columns] - done[:, columns].T @ done  # H^-1_g. [k, d]
    factor = damped_factor(cross[:, columns], 0.0)
    halves = torch.linalg.solve_triangular(factor, cross, upper=False)  # their squares are what H^-1 loses
    state.weights.sub_(halves.T @ torch.linalg.solve_triangular(factor, state.weights[columns], upper=False))
    parts = halves.view(len(columns), len(state.blocks), state.size).permute(1, 2, 0)
    state.blocks.sub_(parts @ parts.mT)
    _note(state, halves)
    # Nothing is left of the cut neurons; unit blocks keep later solves regular.
    state.weights[columns] = 0
    state.blocks[chosen] = torch.eye(state.size, dtype=state.blocks.dtype, device=state.blocks.device)


def _note(state: _Reader, halves: Tensor) -> None:
    """Add rows to ``done``, which grows where it is too small."""
    end = state.used + len(halves)
    if end > len(state.done):
        room = state.done.new_empty(max(2 * end, len(state.inverse) // 8), len(state.inverse))
        room[: state.used] = state.done[: state.used]
        state.done = room
    state.done[state.used : end] = halves
    state.used = end


def _compact(state: _Reader, held: Tensor) -> _Reader:
    """The same consumer with only the neurons that are ``held``, its inverse up to date."""
    index = held.repeat_interleave(state.size).nonzero().flatten()
    done = state.done[: state.used, index]
    inverse = state.inverse[index][:, index].addmm_(done.T, done, alpha=-1)
    return _fresh(inverse, state.weights[index], state.size)
