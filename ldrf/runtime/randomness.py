"""Models whose outputs depend on chance, such as dropout that is left on: noticed, and compared under equal chances."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ldrf.errors import LdrfWarning
from ldrf.inputs import Inputs
from ldrf.runtime.device import accelerator, kept_random_state

TOLERANCE = 1e-4  # relative to the largest output; sums in another order stay below


@contextmanager
def same_random_numbers(seed: int = 0) -> Iterator[None]:
    """Random numbers drawn within are the same each time, and those drawn afterwards as if nothing had happened."""
    with kept_random_state():
        if accelerator() is not None:
            torch.manual_seed(seed)
        else:  # the same numbers in a hundredth of the time: nothing is noted for devices that may come
            torch.default_generator.manual_seed(seed)
        yield


@torch.no_grad()
def warn_of_randomness(model: nn.Module, chunk: Inputs) -> None:
    """Warn once where the same inputs give other outputs when run again."""
    few = chunk.first(2)
    with same_random_numbers(0):
        first = _outputs(model, few)
    with same_random_numbers(1):
        second = _outputs(model, few)
    if any(_differ(a, b) for a, b in zip(first, second, strict=False)):
        warnings.warn(
            f"{type(model).__name__} gives other outputs for the same inputs each time (is dropout left on?): it is "
            "pruned all the same, but what chance changes cannot be reconstructed.",
            LdrfWarning,
            stacklevel=4,
        )


def _outputs(model: nn.Module, chunk: Inputs) -> list[Tensor]:
    return [t for t in tree_leaves(chunk.call(model)) if isinstance(t, Tensor) and t.is_floating_point()]


def _differ(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape:
        return True
    gap = (one - other).abs()
    finite = gap[torch.isfinite(gap)]
    return bool(finite.numel()) and float(finite.max()) > TOLERANCE * float(one.abs().nan_to_num(0, 0, 0).max())
