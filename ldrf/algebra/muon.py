"""Gradient steps that go equally far in every direction of a matrix: Muon (Jordan et al., 2024); Adam for the rest.

A slim network is near its goal, and the remaining error lies in directions of small gradient. Adam scales each weight
by itself and follows the few steep directions of a layer; in the orthogonal matrix nearest to the gradient all
directions are equally steep.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from ldrf.runtime.device import has_bfloat16

SHARE = 0.3  # of the rate by which a matrix moves, so that one rate suits it and what moves by Adam
MOMENTUM = 0.95
CURVE = (3.4445, -4.7750, 2.0315)  # odd polynomial that lifts singular values towards 1, five times over
ROUNDS = 5
LARGE = 128  # smaller side from which on products in bfloat16 take less time, where a processor has them
WIDEST = 1024  # the smaller side up to which a step's products are worth their time; wider ones move by Adam


class Muon(torch.optim.Optimizer):
    """Matrices and convolutions move along their orthogonalised gradients, all other tensors by Adam.

    A group's ``lr`` is the root mean square of Adam's step; that of a matrix is ``SHARE`` of it.
    """

    def __init__(
        self, params: Iterable[Tensor] | Iterable[dict[str, Any]], lr: float, betas: tuple[float, float] = (0.9, 0.999)
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        for group in self.param_groups:
            for tensor in group["params"]:
                if tensor.grad is not None:
                    move = _matrix_step if is_matrix(tensor) else _adam_step
                    tensor.sub_(move(tensor.grad, self.state[tensor], group["betas"]), alpha=group["lr"])


def is_matrix(tensor: Tensor) -> bool:
    """Whether a tensor maps several inputs to several outputs; a depthwise kernel reads one, and is many small ones."""
    return tensor.ndim > 1 and tensor.shape[1] > 1 and 1 < min(tensor.flatten(1).shape) <= WIDEST


def _matrix_step(gradient: Tensor, state: dict[str, Any], _betas: tuple[float, float]) -> Tensor:
    """Muon's step: the orthogonalised mean of the gradients, its root mean square ``SHARE``."""
    mean = state.setdefault("mean", torch.zeros_like(gradient))
    mean.lerp_(gradient, 1 - MOMENTUM)
    direction = gradient.lerp(mean, MOMENTUM).flatten(1)
    large = min(direction.shape) >= LARGE and has_bfloat16(direction.device)
    step = orthogonalised(direction, torch.bfloat16 if large else torch.float32).reshape(gradient.shape)
    return step * (SHARE / step.square().mean().sqrt().clamp_min(1e-12))


def _adam_step(gradient: Tensor, state: dict[str, Any], betas: tuple[float, float]) -> Tensor:
    """Adam's step: the mean of the gradients over the root of their mean square, both corrected for their start."""
    state["steps"] = state.get("steps", 0) + 1
    mean, square = (state.setdefault(name, torch.zeros_like(gradient)) for name in ("mean", "square"))
    mean.lerp_(gradient, 1 - betas[0])
    square.lerp_(gradient.square(), 1 - betas[1])
    first, second = (1 - beta ** state["steps"] for beta in betas)
    return (mean / first) / ((square / second).sqrt() + 1e-8)


def orthogonalised(matrix: Tensor, precision: torch.dtype = torch.float32) -> Tensor:
    """The matrix [m, n] with its singular values brought near 1, by products alone.

    The rounds are done on the Gram matrix of the smaller side; the larger side comes in twice. All are polynomials of
    that matrix, so their order does not matter. Directions need no more than two digits: products may be in a lower
    ``precision``.
    """
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    x = wide / (wide.norm() + 1e-12)
    now, turn = x @ x.T, None
    a, b, c = CURVE
    for left in reversed(range(ROUNDS)):
        gram = now.to(precision)  # of turn @ x
        lift = torch.add(b * now, gram @ gram, alpha=c)
        lift.diagonal().add_(a)
        lift = lift.to(precision)
        turn = lift if turn is None else lift @ turn
        now = (lift @ gram @ lift).to(now.dtype) if left else now
    assert turn is not None
    turned = (turn @ x.to(precision)).to(matrix.dtype)
    return turned if wide is matrix else turned.T
