"""The order of nearly equal scores, which rounding alone decides: the same in two runs that are compared.

A detector goes on with the best of many positions. Where two of them score alike, a model and its graph may take them
in another order, and all that follows is ordered otherwise.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

ORDERED = (torch.ops.aten.topk.default, torch.ops.aten.sort.default, torch.ops.aten.sort.stable)
ALIKE = 1e-4  # of the largest score: what is further apart was not ordered by rounding


@dataclass(frozen=True)
class Choices:
    """Places that calls of ``topk`` and ``sort`` chose in one run, for another to take where it scores them alike."""

    places: list[Tensor] = field(default_factory=list)

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Within, the places are noted in the order of the calls."""
        noted = self.places

        class Noting(TorchDispatchMode):
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                result = func(*args, **(kwargs or {}))
                if func in ORDERED:
                    noted.append(result[1].clone())
                return result

        with Noting():
            yield

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Within, the same places are taken again, in the order of the calls."""
        left = list(self.places)

        class Following(TorchDispatchMode):
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                result = func(*args, **(kwargs or {}))
                if func not in ORDERED:
                    return result
                while left:
                    places = left.pop(0).to(result[1].device)
                    if places.shape == result[1].shape:  # a call that nothing reads is in no graph
                        return _alike(args[0], _dim(func, args, kwargs or {}), result[0], result[1], places)
                return result

        with Following():
            yield


def _dim(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    names = [a.name for a in func._schema.arguments]
    return {"dim": -1, **dict(zip(names, args, strict=False)), **kwargs}["dim"]


def _alike(scores: Tensor, dim: int, values: Tensor, own: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """The scores at the other run's places, or the own ones where these are not as good."""
    if not values.is_floating_point() or not scores.ndim or torch.equal(own, places):
        return values, own
    others = scores.gather(dim, places)
    apart = (others - values).nan_to_num(0.0, 0.0, 0.0).abs().max()
    return (others, places) if apart <= ALIKE * values.nan_to_num(0.0, 0.0, 0.0).abs().max() else (values, own)
