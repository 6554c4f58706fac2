"""The l1 mask: it minimises what Eqn. 2-4 say, makes exact zeros, and finds the neurons that can go."""

import math

import pytest
import torch
from torch import Tensor

from ldrf.errors import LdrfError
from ldrf.reconstruction.neuron_mask import Capped, Mask, MaskProblem, MaskSettings, Readers, learn_mask


def _quadratic(n: int = 6) -> tuple[Tensor, Tensor]:
    """H and c of an error m^T H m - 2 c m + 1 that is a least-squares fit."""
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(50, n, generator=generator)
    t = a @ torch.linspace(0.1, 1, n)
    return a.T @ a / t.square().sum(), a.T @ t / t.square().sum()


def _learn(lambda_2: float | None, lambda_1: float = 1.0, width: int = 3, steps: int = 200) -> Mask:
    h, c = _quadratic()

    def error(_: int, q: list[Tensor]) -> Tensor:
        return (q[0].T @ h @ q[0] - 2 * c @ q[0] + 1).sum()

    problem = MaskProblem(error, [torch.ones(6, 1)], [torch.arange(6)], 6, [0])
    return learn_mask(problem, MaskSettings(width, lambda_1, lambda_2, steps))


def test_with_r_fixed_the_mask_meets_the_conditions_of_the_optimum():
    h, c = _quadratic()
    mask = _learn(lambda_2=1.0).values
    gradient, alive = 2 * (h @ mask - c), mask > 0
    assert 0 < int(alive.sum()) < 6  # exact zeros, and not only zeros
    torch.testing.assert_close(gradient[alive], torch.full_like(gradient[alive], -1 / 6), atol=1e-4, rtol=0)
    assert (gradient[~alive].abs() <= 1 / 6 + 1e-4).all()


def test_groups_meet_the_conditions_of_the_optimum():
    """Two consumers, one with two columns per neuron: the gradient of a group has norm lambda_2 / n, or less."""
    generator = torch.Generator().manual_seed(0)
    data = [torch.randn(80, 10, generator=generator), torch.randn(80, 5, generator=generator)]
    starts = [torch.randn(10, 3, generator=generator), torch.randn(5, 2, generator=generator)]
    starts[0][4:] *= 0.1
    owners = [torch.arange(5).repeat_interleave(2), torch.arange(5)]
    targets = [x @ q for x, q in zip(data, starts, strict=True)]
    power = sum(t.square().sum() for t in targets)

    def error(_: int, matrices: list[Tensor]) -> Tensor:
        gaps = [(x @ q - t).square().sum() for x, q, t in zip(data, matrices, targets, strict=True)]
        return torch.stack(gaps).sum() / power

    readers, vector = Readers.of(starts, owners, 5)
    torch.testing.assert_close(readers.norms(vector), torch.ones(5))
    for made, start in zip(readers.matrices(vector), starts, strict=True):
        torch.testing.assert_close(made, start)
    for _ in range(500):
        at = vector.clone().requires_grad_(True)
        gradient = torch.autograd.grad(error(0, readers.matrices(at)), at)[0]
        vector = readers.shrunk(vector - 0.8 * gradient, 0.8 * 0.3 / 5)
    problem, settings = MaskProblem(error, starts, owners, 5, [0]), MaskSettings(2, lambda_2=0.3, steps=200)
    mask = learn_mask(problem, settings).values
    torch.testing.assert_close(mask, readers.norms(vector), atol=1e-3, rtol=1e-3)
    assert 0 < int((mask > 0).sum()) < 5


def test_lambda_1_and_lambda_2_only_matter_by_their_ratio():
    torch.testing.assert_close(_learn(0.5).values, _learn(2.0, 4.0).values, atol=1e-4, rtol=1e-3)


def test_a_larger_lambda_2_leaves_fewer_neurons():
    left = [int((_learn(value).values > 0).sum()) for value in (0.0, 0.5, 2.0, 20.0)]
    assert left == sorted(left, reverse=True) and left[0] == 6 and left[-1] == 0


def test_without_lambda_2_the_width_is_found():
    for width in (2, 4):
        assert abs(int((_learn(None, width=width, steps=200).values > 0).sum()) - width) <= 1


def test_kept_breaks_ties_at_zero_by_who_died_last():
    mask = Mask(torch.tensor([0.0, 0.5, 0.0, 0.0]), torch.tensor([3.0, 9.0, 7.0, 5.0]), 0.1)
    assert mask.kept(1).tolist() == [1] and mask.kept(2).tolist() == [1, 2] and mask.kept(3).tolist() == [1, 2, 3]


def test_capped_rows_never_outgrow_their_start():
    start = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    capped = Capped(start)
    torch.testing.assert_close(capped(), start)
    with torch.no_grad():
        capped.delta.add_(5.0)
    torch.testing.assert_close(capped().norm(dim=1), start.norm(dim=1))
    assert torch.isfinite(Capped(torch.zeros(2, 2))()).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"width": 0}, "width must be"),
        ({"width": 7}, "width must be"),
        ({"lambda_1": 0.0}, "'lambda_1'"),
        ({"lambda_2": -1.0}, "'lambda_2'"),
        ({"lambda_2": math.nan}, "'lambda_2'"),
    ],
)
def test_bad_input_is_one_sentence(change, words):
    problem = MaskProblem(lambda _, q: q[0].sum(), [torch.ones(6, 1)], [torch.arange(6)], 6, [0])
    with pytest.raises(LdrfError, match=words):
        learn_mask(problem, MaskSettings(**{"width": 3, **change}))
