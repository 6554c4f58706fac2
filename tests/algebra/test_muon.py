"""Steps of Muon against the SVD, and against Adam on a badly conditioned problem."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ldrf.algebra.muon import LARGE, SHARE, Muon, is_matrix, orthogonalised


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 40), st.integers(2, 40), st.integers(0, 99))
def test_singular_values_come_near_one_and_vectors_stay(rows: int, columns: int, seed: int):
    matrix = drawn(rows, columns, seed=seed)
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    found = left.T @ orthogonalised(matrix) @ right.T
    large = values > 0.05 * values.sum()  # five rounds lift the smallest only part of the way
    assert (found.diagonal()[large] > 0.6).all() and (found.diagonal() < 1.3).all()
    assert torch.allclose(found, torch.diag(found.diagonal()), atol=1e-3)


@pytest.mark.parametrize(
    ("shape", "matrix"),
    [
        ((8, 4), True),
        ((8, 4, 3, 3), True),
        ((8, 1, 3, 3), False),  # depthwise
        ((8,), False),
        ((1, 8), False),
        ((2048, 2048), False),
    ],
)
def test_what_counts_as_a_matrix(shape: tuple[int, ...], matrix: bool):
    assert is_matrix(torch.empty(shape)) is matrix


def test_a_step_has_the_size_of_the_rate():
    conv, bias = drawn(8, 4, 3, 3).requires_grad_(), drawn(8).requires_grad_()
    before = conv.detach().clone(), bias.detach().clone()
    optimiser = Muon([conv, bias], lr=0.1)
    (conv.sin().sum() + bias.sin().sum()).backward()
    optimiser.step()
    moved = [float((b - a).detach().square().mean().sqrt()) for a, b in zip(before, (conv, bias), strict=True)]
    assert moved == pytest.approx([0.1 * SHARE, 0.1], rel=1e-4)


def test_a_tensor_without_slope_stays():
    tensor = drawn(4, 4).requires_grad_()
    before = tensor.detach().clone()
    Muon([tensor], lr=0.1).step()
    assert torch.equal(tensor, before)


def test_a_slope_of_zero_moves_nothing_to_nan():
    tensor = drawn(4, 4).requires_grad_()
    optimiser = Muon([tensor], lr=0.1)
    (tensor * 0).sum().backward()
    optimiser.step()
    assert torch.isfinite(tensor).all()


def fitted(kind: type[torch.optim.Optimizer], rate: float, steps: int = 150) -> float:
    """What is left after fitting a matrix to inputs whose directions differ thirtyfold in size."""
    inputs = drawn(512, 24) * torch.logspace(0, -1.5, 24) @ torch.linalg.qr(drawn(24, 24, seed=1)).Q
    wanted = inputs @ drawn(24, 16, seed=2)
    matrix = torch.zeros(24, 16, requires_grad=True)
    optimiser = kind([matrix], lr=rate)  # pyright: ignore[reportCallIssue]
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = rate * (1 - step / steps)
        loss = (inputs @ matrix - wanted).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return float((inputs @ matrix.detach() - wanted).square().mean())


def test_steep_directions_do_not_hold_the_others_back():
    rates = (0.01, 0.03, 0.1, 0.3)
    assert min(fitted(Muon, rate) for rate in rates) < 0.5 * min(fitted(torch.optim.Adam, rate) for rate in rates)


def test_a_state_that_is_stored_goes_on_the_same():
    def run(stop: bool) -> Tensor:
        tensors = [drawn(6, 5).requires_grad_(), drawn(6, seed=1).requires_grad_()]
        optimiser = Muon(tensors, lr=0.05)
        for step in range(6):
            if stop and step == 3:
                state, optimiser = optimiser.state_dict(), Muon(tensors, lr=0.05)
                optimiser.load_state_dict(state)
            optimiser.zero_grad()
            sum((t - 1).square().sum() for t in tensors).backward()  # pyright: ignore[reportAttributeAccessIssue]
            optimiser.step()
        return torch.cat([t.detach().flatten() for t in tensors])

    assert torch.equal(run(True), run(False))


@pytest.mark.parametrize("shape", [(160, 300), (300, 160), (40, 30)])
def test_a_lower_precision_turns_a_step_by_little(shape: tuple[int, int]):
    exact, rounded = (orthogonalised(drawn(*shape), precision) for precision in (torch.float32, torch.bfloat16))
    assert rounded.dtype == exact.dtype
    assert 0 < float((rounded - exact).norm() / exact.norm()) < 0.03


@pytest.mark.parametrize("rows", [LARGE, LARGE - 1])
@pytest.mark.parametrize("there", [True, False])
def test_large_matrices_are_turned_in_bfloat16_where_a_processor_has_it(monkeypatch, rows: int, there: bool):
    monkeypatch.setattr("ldrf.algebra.muon.has_bfloat16", lambda device: there and device.type == "cpu")
    used = []
    monkeypatch.setattr("ldrf.algebra.muon.orthogonalised", lambda m, p: used.append(p) or orthogonalised(m, p))
    tensor = drawn(rows, LARGE).requires_grad_()
    before = tensor.detach().clone()
    tensor.sin().sum().backward()
    Muon([tensor], lr=0.1).step()
    assert used == [torch.bfloat16 if there and rows == LARGE else torch.float32]
    assert float((tensor.detach() - before).square().mean().sqrt()) == pytest.approx(0.1 * SHARE, rel=1e-3)
