"""How far two values are from each other, with a gradient that goes through them as seldom as can be."""

from typing import Any, cast

import torch
from torch import Tensor


class SquaredGap(torch.autograd.Function):
    """The summed squared difference of two values, in float32 whatever precision they were computed in.

    Rows count with the square of their factors, where these are given. Maps are large, so each is gone through as
    seldom as can be, and the gradient lies in memory as they do, which that of ``mse_loss`` does not.
    """

    @staticmethod
    def forward(ctx: Any, mine: Tensor, theirs: Tensor, factors: Tensor | None) -> Tensor:
        gap = mine.float().sub_(theirs) if mine.dtype != torch.float32 else mine - theirs
        gap = gap if factors is None else gap.mul_(factors)
        ctx.save_for_backward(gap.to(mine.dtype), factors)
        return torch.linalg.vector_norm(gap).square()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        gap, factors = ctx.saved_tensors
        gradient = gap * (2 * gradients[0]).to(gap.dtype)
        return gradient if factors is None else gradient * factors.to(gap.dtype), None, None


def squared_gap(mine: Tensor, theirs: Tensor, factors: Tensor | None = None) -> Tensor:
    """:class:`SquaredGap` as a function."""
    return cast(Tensor, SquaredGap.apply(mine, theirs, factors))
