"""Gradient descent in small steps: tensors move relative to their own size, and one chunk of images counts per step."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ldrf.runtime.progress import progress


class Scaled:
    """A tensor that moves in units of its own root mean square, so that one learning rate suits all tensors."""

    def __init__(self, start: Tensor) -> None:
        self.start = start.detach().clone()
        self.size = float(start.square().mean().sqrt()) + 1e-6
        self.delta = torch.zeros_like(self.start, requires_grad=True)

    def __call__(self) -> Tensor:
        """The tensor where it stands now."""
        return self.start + self.size * self.delta


def scaled(tensors: Any) -> Any:
    """A structure of tensors (tuples, named tuples, dicts) with a :class:`Scaled` in place of each."""
    return pytree.tree_map(Scaled, tensors)


def leaves(structure: Any) -> list[Any]:
    """What a structure holds, in order."""
    return pytree.tree_leaves(structure)


def filled(structure: Any, values: Iterable[Any]) -> Any:
    """A structure of the same form that holds ``values``, in the order of :func:`leaves`."""
    return pytree.tree_unflatten(values, pytree.tree_structure(structure))


def shuffled(chunks: Sequence[int], seed: int) -> Iterator[int]:
    """Chunks in random order without end: each comes once before any comes again."""
    generator = torch.Generator().manual_seed(seed)
    while chunks:
        order = torch.randperm(len(chunks), generator=generator).tolist()
        yield from (chunks[i] for i in reversed(order))


def descend(
    moving: Sequence[Scaled],
    losses: Callable[[int], Iterable[Tensor]],
    chunks: Sequence[int],
    steps: int,
    rate: float,
    seed: int,
    optimiser_of: Callable[..., torch.optim.Optimizer] = torch.optim.Adam,
    bar: str | None = None,
    prepare: Callable[[int], None] | None = None,
) -> None:
    """Move the tensors down the sum of ``losses(chunk)``, one chunk per step.

    ``bar`` is the title of a progress bar. ``prepare`` is told at every step which chunk comes next.
    """
    optimiser = optimiser_of([tensor.delta for tensor in moving], lr=rate, betas=(0.9, 0.99))
    counted = progress(range(steps), bar) if bar else range(steps)
    for step, (chunk, following) in zip(counted, pairwise(shuffled(chunks, seed)), strict=False):
        if prepare:
            prepare(following)
        for group in optimiser.param_groups:
            group["lr"] = rate * _share_of_rate(step / steps)
        optimiser.zero_grad(set_to_none=True)
        for loss in losses(chunk):
            loss.backward()
        optimiser.step()


def _share_of_rate(done: float, warm: float = 0.1) -> float:
    """A short linear rise, then a cosine to zero; ``done`` is the share of the steps that are done."""
    return done / warm if done < warm else 0.5 * (1 + math.cos(math.pi * (done - warm) / (1 - warm)))
