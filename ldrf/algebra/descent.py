"""Small steps: tensors that move in units of their own size, a rate that rises and falls, chunks in turn."""

import math
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from ldrf.runtime.progress import progress


class Scaled:
    """A tensor moved in units of its own root mean square, so that one rate suits all."""

    def __init__(self, start: Tensor) -> None:
        self.start = start.detach().clone()
        self.size = float(start.square().mean().sqrt()) + 1e-6
        self.delta = torch.zeros_like(self.start, requires_grad=True)

    def __call__(self) -> Tensor:
        return self.start + self.size * self.delta


def descend(
    moving: Sequence[Scaled],
    losses: Callable[[int], Iterable[Tensor]],
    chunks: Sequence[int],
    steps: int,
    rate: float,
    seed: int,
    optimiser_of: Callable[..., torch.optim.Optimizer] = torch.optim.Adam,
    told: str | None = None,
) -> None:
    """Move the tensors down the sum of ``losses(chunk)``, chunks in random order, each once before any comes again.

    ``told`` names it in a progress bar.
    """
    optimiser = optimiser_of([tensor.delta for tensor in moving], lr=rate, betas=(0.9, 0.99))
    generator = torch.Generator().manual_seed(seed)
    order: list[int] = []
    for step in progress(range(steps), told) if told else range(steps):
        for group in optimiser.param_groups:
            group["lr"] = rate * _share_of_rate(step / steps)
        order = order or [chunks[i] for i in torch.randperm(len(chunks), generator=generator).tolist()]
        optimiser.zero_grad(set_to_none=True)
        for loss in losses(order.pop()):
            loss.backward()
        optimiser.step()


def _share_of_rate(progress: float, warm: float = 0.1) -> float:
    """A short linear rise, then a cosine to zero."""
    return progress / warm if progress < warm else 0.5 * (1 + math.cos(math.pi * (progress - warm) / (1 - warm)))
