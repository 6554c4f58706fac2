"""Gradient descent in small steps: tensors move relative to their own size, and one chunk of images counts per step."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ldrf.runtime.progress import progress


class Scaled:
    """A tensor that moves in units of its own root mean square, so that one learning rate suits all tensors.

    The channels of a depthwise kernel [n, 1, ...] each have a size of their own: folded norms make some far larger.
    """

    def __init__(self, start: Tensor) -> None:
        self.start = start.detach().clone()
        self.size = _channel_sizes(start) if start.ndim > 2 and start.shape[1] == 1 else _size(start)
        self.delta = torch.zeros_like(self.start, requires_grad=True)

    def __call__(self) -> Tensor:
        """The tensor where it stands now."""
        return self.start + self.size * self.delta


def _size(tensor: Tensor) -> float:
    return float(tensor.square().mean().sqrt()) + 1e-6


def _channel_sizes(kernel: Tensor) -> Tensor:
    """The size of each channel's kernel, [n, 1, ...]."""
    return kernel.detach().flatten(1).square().mean(1).sqrt().view(-1, *[1] * (kernel.ndim - 1)) + 1e-6


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


@dataclass(frozen=True)
class Standing:
    """Where a descent stands: how many steps are done, and every tensor that decides how it goes on."""

    steps: int
    tensors: dict[str, Tensor]


class Keeper(Protocol):
    """Keeps the standing of a descent, so that it goes on from there after the process was killed."""

    def last(self) -> Standing | None: ...

    def keep(self, standing: Standing) -> None: ...


KEEP_EVERY = 120.0  # seconds between two standings that are kept


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
    keeper: Keeper | None = None,
    generator: torch.Generator | None = None,
) -> None:
    """Move the tensors down the sum of ``losses(chunk)``, one chunk per step.

    ``bar`` is the title of a progress bar. ``prepare`` is told at every step which chunk comes next. ``keeper`` keeps
    the standing every few minutes, with that of the ``generator`` that ``losses`` draws from.
    """
    optimiser = optimiser_of([tensor.delta for tensor in moving], lr=rate, betas=(0.9, 0.99))
    standing = keeper.last() if keeper else None
    if standing:
        _restore(standing, moving, optimiser, generator)
    first, kept_at = standing.steps if standing else 0, time.monotonic()
    counted = progress(range(first, steps), bar) if bar else range(first, steps)
    order = islice(pairwise(shuffled(chunks, seed)), first, None)
    for step, (chunk, following) in zip(counted, order, strict=False):
        if prepare:
            prepare(following)
        for group in optimiser.param_groups:
            group["lr"] = rate * _share_of_rate(step / steps)
        optimiser.zero_grad(set_to_none=True)
        for loss in losses(chunk):
            loss.backward()
        optimiser.step()
        if keeper and time.monotonic() - kept_at >= KEEP_EVERY:
            keeper.keep(_standing(step + 1, moving, optimiser, generator))
            kept_at = time.monotonic()


def _standing(
    steps: int, moving: Sequence[Scaled], optimiser: torch.optim.Optimizer, generator: torch.Generator | None
) -> Standing:
    """What :func:`_restore` needs to go on with the same bits."""
    tensors = {} if generator is None else {"generator": generator.get_state()}
    for i, tensor in enumerate(moving):
        tensors[f"{i} delta"] = tensor.delta.detach()
        for name, value in optimiser.state[tensor.delta].items():
            tensors[f"{i} {name}"] = value if isinstance(value, Tensor) else torch.tensor(value)
    return Standing(steps, tensors)


@torch.no_grad()
def _restore(
    standing: Standing,
    moving: Sequence[Scaled],
    optimiser: torch.optim.Optimizer,
    generator: torch.Generator | None,
) -> None:
    if generator is not None:
        generator.set_state(standing.tensors["generator"])
    for name, value in standing.tensors.items():
        place, _, what = name.partition(" ")
        if not what:
            continue
        delta = moving[int(place)].delta
        if what == "delta":
            delta.copy_(value)
        else:
            # A whole number was no tensor in the optimiser's state.
            optimiser.state[delta][what] = value.to(delta.device) if value.is_floating_point() else value.item()


def _share_of_rate(done: float, warm: float = 0.05) -> float:
    """A short rise, then a line down to zero; ``done`` is the share of the steps that are done."""
    return done / warm if done < warm else (1 - done) / (1 - warm)
