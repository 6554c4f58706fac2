"""The squared gap and its gradient against plain algebra."""

import pytest
import torch

from ldrf.algebra.squared_gap import squared_gap


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("weighed", [False, True])
def test_a_squared_gap_and_its_gradient_are_those_of_plain_algebra(precision: torch.dtype, weighed: bool):
    torch.manual_seed(0)
    mine, theirs = (torch.randn(3, 5, 4, 4).to(precision).to(memory_format=torch.channels_last) for _ in range(2))
    factors = torch.rand(3, 1, 4, 4) if weighed else None
    mine.requires_grad_()
    gap = squared_gap(mine, theirs, factors)
    (2.5 * gap).backward()
    plain = mine.detach().double().requires_grad_()
    wanted = ((plain - theirs.double()) * (1 if factors is None else factors.double())).square().sum()
    (2.5 * wanted).backward()
    assert mine.grad is not None and plain.grad is not None
    rounding = {torch.float32: 1e-5, torch.bfloat16: 2e-2}[precision]
    torch.testing.assert_close(gap.double(), wanted, rtol=1e-5, atol=0)
    torch.testing.assert_close(mine.grad.double(), plain.grad, rtol=rounding, atol=rounding)
    assert mine.grad.is_contiguous(memory_format=torch.channels_last)
