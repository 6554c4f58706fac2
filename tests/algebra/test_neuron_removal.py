"""Second-order removal against brute-force least squares on every subset."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ldrf.algebra.moments import Moments, RowSums
from ldrf.algebra.neuron_removal import removal_order


def data(neurons: int, size: int, outputs: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Correlated inputs [r, neurons * size], a weight [d, o] and the columns of each neuron."""
    generator = torch.Generator().manual_seed(seed)
    d = neurons * size
    x = torch.randn(200, d, generator=generator) @ torch.randn(d, d, generator=generator) + 2
    return x, torch.randn(d, outputs, generator=generator), torch.arange(d).view(neurons, size)


def moments_of(x: Tensor) -> Moments:
    sums = RowSums(x.shape[1])
    sums.add(x)
    return sums.moments()


def brute_force(x: Tensor, weight: Tensor, groups: Tensor, kept: list[int]) -> float:
    """Squared error of the best refit on the kept neurons and a constant."""
    x, weight = x.double(), weight.double()
    target = x @ weight
    columns = groups[sorted(kept)].flatten()
    design = torch.cat([x[:, columns], torch.ones(len(x), 1)], 1)
    return float((target - design @ torch.linalg.lstsq(design, target).solution).square().sum())


def spread(x: Tensor, weight: Tensor) -> float:
    target = x.double() @ weight.double()
    return float((target - target.mean(0)).square().sum())


@given(neurons=st.integers(2, 6), size=st.integers(1, 3), outputs=st.integers(1, 4), seed=st.integers(0, 999))
def test_errors_and_order_are_those_of_brute_force(neurons, size, outputs, seed):
    x, weight, groups = data(neurons, size, outputs, seed)
    removal = removal_order([(moments_of(x), weight, groups)], damping=1e-10)
    total = spread(x, weight)
    alive = list(range(neurons))
    for gone in removal.order.tolist():
        best = min(brute_force(x, weight, groups, [n for n in alive if n != other]) for other in alive)
        alive.remove(gone)
        error = brute_force(x, weight, groups, alive)
        assert error <= best + 1e-3 * total, "another neuron would have been cheaper"
        assert float(removal.errors[len(alive)]) == pytest.approx(error / total, rel=1e-2, abs=1e-4)
    assert float(removal.errors[0]) == pytest.approx(1, rel=1e-3)
    assert float(removal.errors[neurons]) == 0


def test_two_readers_are_judged_together():
    x, weight, groups = data(5, 1, 3, 1)
    other, reader, _ = data(5, 1, 2, 2)
    removal = removal_order([(moments_of(x), weight, groups), (moments_of(other), reader, groups)], damping=1e-10)
    total = (spread(x, weight) + spread(other, reader)) / 200
    alive = list(range(5))
    for gone in removal.order.tolist():
        alive.remove(gone)
        error = (brute_force(x, weight, groups, alive) + brute_force(other, reader, groups, alive)) / 200
        assert float(removal.errors[len(alive)]) == pytest.approx(error / total, rel=1e-2, abs=1e-4)


def test_a_neuron_that_is_a_sum_of_others_goes_first_and_for_free():
    x, weight, groups = data(5, 1, 3, 0)
    x[:, 2] = x[:, 0] - x[:, 4]
    removal = removal_order([(moments_of(x), weight, groups)], damping=1e-9)
    assert int(removal.order[0]) in (0, 2, 4)
    assert float(removal.errors[4]) < 1e-5 < float(removal.errors[3])


def test_dead_neurons_go_first():
    x, weight, groups = data(6, 2, 3, 0)
    x[:, groups[[1, 4]].flatten()] = 0.7
    removal = removal_order([(moments_of(x), weight, groups)], damping=1e-8)
    assert set(removal.order[:2].tolist()) == {1, 4}
    assert torch.isfinite(removal.errors).all()


def test_wide_layers_lose_several_at_a_time_but_each_once():
    x, weight, groups = data(150, 1, 4, 0)
    removal = removal_order([(moments_of(x), weight, groups)], damping=1e-4, rounds=10)
    assert sorted(removal.order.tolist()) == list(range(150))
    assert (removal.errors.diff() <= 1e-9).all()
    assert removal.kept(40).tolist() == sorted(removal.order[110:].tolist())
    assert len(removal.kept(150)) == 150


def test_few_rows_are_removed_like_their_sums():
    x, weight, groups = data(40, 2, 3, 5)
    few = moments_of(x[:9])
    assert few.few is not None
    one, other = (removal_order([(m, weight, groups)], damping=1e-2) for m in (few, replace(few, few=None)))
    assert torch.equal(one.order, other.order)
    torch.testing.assert_close(one.errors, other.errors)
