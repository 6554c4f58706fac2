"""Descent in small steps: structures are rebuilt as they were, chunks come in turn, and a quadratic is minimised."""

import math
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ldrf.algebra import descent
from ldrf.algebra.descent import Scaled, Standing, descend, filled, leaves, scaled, shuffled
from ldrf.algebra.muon import Muon


class Pair(NamedTuple):
    first: Any
    by_name: dict[str, Any]


def test_a_tensor_moves_in_units_of_its_own_size():
    start = torch.tensor([3.0, -4.0])
    small, large = Scaled(1e-3 * start), Scaled(1e3 * start)
    assert torch.equal(large(), 1e3 * start)
    with torch.no_grad():
        small.delta += 0.1
        large.delta += 0.1
    torch.testing.assert_close((large() - 1e3 * start) / 1e6, small() - 1e-3 * start, rtol=1e-2, atol=0)
    size = math.sqrt(12.5)
    torch.testing.assert_close(large(), 1e3 * (start + 0.1 * size))


def test_a_tensor_of_zeros_can_move():
    zeros = Scaled(torch.zeros(3))
    with torch.no_grad():
        zeros.delta += 1
    assert (zeros() > 0).all()


def test_a_structure_is_taken_apart_and_rebuilt_in_order():
    tensors = Pair(torch.ones(2), {"b": torch.zeros(1), "a": torch.full((3,), 2.0)})
    moving = scaled(tensors)
    assert isinstance(moving, Pair) and list(moving.by_name) == ["b", "a"]
    assert [leaf.start.numel() for leaf in leaves(moving)] == [2, 1, 3]
    again = filled(moving, [leaf() for leaf in leaves(moving)])
    assert torch.equal(again.first, tensors.first)
    assert all(torch.equal(again.by_name[name], tensors.by_name[name]) for name in "ab")


@given(st.integers(1, 9), st.integers(1, 4), st.integers(0, 99))
def test_each_chunk_comes_once_before_any_comes_again(number: int, rounds: int, seed: int):
    chunks = [10 * i for i in range(number)]
    order = list(islice(shuffled(chunks, seed), rounds * number))
    for turn in range(rounds):
        assert sorted(order[turn * number : (turn + 1) * number]) == chunks
    assert order == list(islice(shuffled(chunks, seed), rounds * number))


def test_orders_differ_by_seed_and_from_round_to_round():
    first, other = (list(islice(shuffled(range(20), seed), 40)) for seed in (0, 1))
    assert first[:20] != other[:20] and first[:20] != first[20:]


def test_without_chunks_there_are_no_steps():
    tensor = Scaled(torch.ones(2))
    descend([tensor], lambda _: pytest.fail("no chunk to look at"), [], steps=3, rate=0.1, seed=0)
    assert list(shuffled([], 0)) == [] and torch.equal(tensor(), torch.ones(2))


def test_descent_finds_the_least_squares_solution_over_all_chunks():
    generator = torch.Generator().manual_seed(0)
    x, wanted = torch.randn(4, 30, 5, generator=generator), torch.randn(5, generator=generator)
    weight = Scaled(torch.ones(5))

    def losses(chunk: int) -> Iterator[Tensor]:
        for piece in x[chunk].split(15):  # a loss may come in pieces
            yield (piece @ (weight() - wanted)).square().mean()

    descend([weight], losses, range(4), steps=500, rate=0.1, seed=0)
    torch.testing.assert_close(weight(), wanted, rtol=1e-2, atol=1e-2)


def test_the_rate_rises_and_falls_to_zero():
    rates: list[float] = []

    class Recording(torch.optim.SGD):
        def __init__(self, params: Any, lr: float, betas: tuple[float, float]) -> None:
            super().__init__(params, lr)

        def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
            rates.append(self.param_groups[0]["lr"])

    tensor = Scaled(torch.ones(1))
    descend([tensor], lambda _: [tensor().sum()], [0], steps=100, rate=0.5, seed=0, optimiser_of=Recording)
    top = rates.index(max(rates))
    assert rates[0] == 0 and rates[top] == pytest.approx(0.5) and top == 5
    assert rates[:6] == sorted(rates[:6]) and rates[5:] == sorted(rates[5:], reverse=True)
    assert 0 < rates[-1] < 0.01


@pytest.mark.parametrize("optimiser", [torch.optim.Adam, Muon])
def test_a_descent_that_goes_on_from_where_it_was_kept_ends_with_the_same_bits(optimiser, monkeypatch):
    """Losses that draw random numbers: the generator goes on, too."""
    monkeypatch.setattr(descent, "KEEP_EVERY", 0.0)
    goals = torch.randn(3, 8, 5, generator=torch.Generator().manual_seed(1))

    class Memory:
        def __init__(self, *standings: Standing) -> None:
            self.standings = list(standings)

        def last(self) -> Standing | None:
            return self.standings[-1] if self.standings else None

        def keep(self, standing: Standing) -> None:
            self.standings.append(
                Standing(standing.steps, {name: tensor.clone() for name, tensor in standing.tensors.items()})
            )

    def moved(memory: Memory) -> list[Tensor]:
        generator = torch.Generator().manual_seed(5)
        moving = [Scaled(torch.ones(8, 5)), Scaled(torch.ones(5))]

        def losses(chunk: int) -> Iterator[Tensor]:
            noise = torch.randn(8, 5, generator=generator)
            yield (moving[0]() + moving[1]() - goals[chunk] + 0.1 * noise).square().sum()

        descend(moving, losses, range(3), 12, 0.05, 0, optimiser, keeper=memory, generator=generator)
        return [tensor().detach() for tensor in moving]

    memory = Memory()
    whole = moved(memory)
    assert [standing.steps for standing in memory.standings] == list(range(1, 13))
    resumed = moved(Memory(*memory.standings[:5]))
    assert all(map(torch.equal, whole, resumed))
    assert not any(map(torch.equal, whole, moved(Memory(Standing(12, memory.standings[4].tensors)))))


def test_the_channels_of_a_depthwise_kernel_move_by_their_own_size():
    start = torch.tensor([100.0, 1.0, 0.01]).view(3, 1, 1, 1) * torch.ones(3, 1, 3, 3)
    kernel, matrix = Scaled(start), Scaled(start.repeat(1, 2, 1, 1))
    with torch.no_grad():
        kernel.delta.fill_(0.5)
        matrix.delta.fill_(0.5)
    assert torch.allclose(kernel(), 1.5 * start, rtol=1e-3)
    assert torch.allclose(matrix() - matrix.start, torch.full_like(matrix.start, 0.5 * 57.74), rtol=1e-3)
