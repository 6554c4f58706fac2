"""Contributions from Gram matrices against the same written out, and ThiNet's greedy choice against brute force."""

from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ldrf.algebra.moments import Moments, RowSums
from ldrf.methods.shared.contributions import Contributions, from_moments, total
from ldrf.methods.thinet import remove_greedily, scales


def data(neurons: int, size: int, outputs: int, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Input rows X, weight W [d, o], bias [o], target T [rows, o], and columns [n, g] that are not in order."""
    generator = torch.Generator().manual_seed(seed)
    normal = lambda *shape: torch.randn(*shape, generator=generator)  # noqa: E731
    d = neurons * size
    x = normal(60, d) @ normal(d, d) + 1
    weight, bias = normal(d, outputs), normal(outputs)
    target = x @ weight + bias + normal(60, outputs)
    return x, weight, bias, target, torch.randperm(d, generator=generator).view(neurons, size)


def written_out(x: Tensor, weight: Tensor, groups: Tensor) -> Tensor:
    """Z_i [n, rows, o]."""
    return torch.stack([x[:, g].double() @ weight[g].double() for g in groups])


def moments_of(x: Tensor, t: Tensor) -> Moments:
    sums = RowSums(x.shape[1], t.shape[1])
    sums.add(x, t)
    return sums.moments()


@given(neurons=st.integers(1, 5), size=st.integers(1, 4), outputs=st.integers(1, 4), seed=st.integers(0, 999))
def test_inner_products_are_those_of_the_contributions(neurons, size, outputs, seed):
    x, weight, bias, target, groups = data(neurons, size, outputs, seed)
    moments, z = moments_of(x, target), written_out(x, weight, groups)
    goal = target.double() - bias.double()
    plain = from_moments(moments, weight, bias, groups)
    torch.testing.assert_close(plain.gram, torch.einsum("iro,jro->ij", z, z) / 60, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(plain.cross, torch.einsum("iro,ro->i", z, goal) / 60, rtol=1e-4, atol=1e-3)
    centred = from_moments(moments, weight, None, groups)
    z, goal = z - z.mean(1, keepdim=True), goal - goal.mean(0)
    torch.testing.assert_close(centred.gram, torch.einsum("iro,jro->ij", z, z) / 60, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(centred.cross, torch.einsum("iro,ro->i", z, goal) / 60, rtol=1e-4, atol=1e-3)


def test_other_units_columns_come_off_the_target_and_missing_ones_add_nothing():
    x, weight, bias, target, groups = data(5, 2, 3, 3)
    moments, own, fixed = moments_of(x, target), groups[:4].clone(), groups[4]
    own[2, 1] = -1  # this neuron is behind a single column, and another column is nobody's
    z = torch.stack([x[:, g[g >= 0]].double() @ weight[g[g >= 0]].double() for g in own])
    rest = torch.cat([fixed, groups[2, 1:]])
    goal = target.double() - bias.double() - x[:, rest].double() @ weight[rest].double()
    found = from_moments(moments, weight, bias, own)
    torch.testing.assert_close(found.gram, torch.einsum("iro,jro->ij", z, z) / 60, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(found.cross, torch.einsum("iro,ro->i", z, goal) / 60, rtol=1e-4, atol=1e-3)


def test_consumers_add_up():
    parts = [Contributions(torch.eye(2) * i, torch.ones(2) * i) for i in (1, 2)]
    assert torch.equal(total(parts).gram, 3 * torch.eye(2)) and torch.equal(total(parts).cross, 3 * torch.ones(2))


@pytest.mark.parametrize("seed", range(6))
def test_each_neuron_removed_leaves_the_removed_sum_smallest(seed):
    x, weight, bias, target, groups = data(7, 2, 3, seed)
    z, gram = written_out(x, weight, groups), from_moments(moments_of(x, target), weight, bias, groups).gram
    gone: set[int] = set()
    for width in range(6, 0, -1):
        cost = {i: float(z[[*gone, i]].sum(0).square().sum()) for i in range(7) if i not in gone}
        gone.add(min(cost, key=cost.__getitem__))
        assert set(remove_greedily(gram, width).tolist()) == set(range(7)) - gone


def test_contributions_that_cancel_are_removed_together():
    x, weight, bias, target, groups = data(6, 1, 3, 0)
    x[:, groups[4]] = x[:, groups[1]]
    weight[groups[4]] = -weight[groups[1]]
    z, gram = written_out(x, weight, groups), from_moments(moments_of(x, target), weight, bias, groups).gram
    best = min(combinations(range(6), 2), key=lambda pair: float(z[list(pair)].sum(0).square().sum()))
    assert best == (1, 4)
    if int(gram.diagonal().argmin()) in best:  # greedy sees a pair only when its first is the smallest
        assert remove_greedily(gram, 4).tolist() == [0, 2, 3, 5]
    gram[1, 1] = gram[4, 4] = gram.diagonal().min() / 2
    gram[1, 4] = gram[4, 1] = -gram[1, 1]
    assert remove_greedily(gram, 4).tolist() == [0, 2, 3, 5]


def test_scales_are_least_squares_on_the_kept_contributions():
    x, weight, bias, target, groups = data(6, 2, 3, 1)
    kept = torch.tensor([0, 2, 3, 5])
    found = scales(from_moments(moments_of(x, target), weight, bias, groups), kept, 1e-12)
    design = written_out(x, weight, groups)[kept].flatten(1).T
    goal = (target.double() - bias.double()).flatten()
    torch.testing.assert_close(found, torch.linalg.lstsq(design, goal).solution, rtol=1e-3, atol=1e-4)


def test_scales_of_all_neurons_are_one_when_nothing_is_missing():
    x, weight, bias, _, groups = data(5, 2, 3, 2)
    moments = moments_of(x, x @ weight + bias)
    found = scales(from_moments(moments, weight, bias, groups), torch.arange(5), 1e-6)
    torch.testing.assert_close(found, torch.ones(5, dtype=torch.float64), rtol=1e-3, atol=1e-3)
