"""From whatever a data loader yields to the arguments of one call of the model."""

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ldrf.errors import LdrfError


@dataclass(frozen=True)
class Inputs:
    """The positional and keyword arguments of one forward call, all with the same leading batch size."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def tensors(self) -> list[Tensor]:
        return [v for v in (*self.args, *self.kwargs.values()) if isinstance(v, Tensor)]

    @property
    def rows(self) -> int:
        return len(self.tensors()[0])

    def map(self, change: Any) -> "Inputs":
        """The same arguments with ``change`` applied to each tensor."""
        apply = lambda v: change(v) if isinstance(v, Tensor) else v  # noqa: E731
        return Inputs(tuple(apply(v) for v in self.args), {k: apply(v) for k, v in self.kwargs.items()})

    def call(self, model: nn.Module) -> Any:
        return model(*self.args, **self.kwargs)


def read_inputs(model: nn.Module, batch: Any) -> Inputs:
    """Pick from ``batch`` what ``model.forward`` takes; labels and other surplus entries are left out."""
    parameters = list(inspect.signature(model.forward).parameters.values())
    if isinstance(batch, Tensor):
        found = Inputs((batch,), {})
    elif isinstance(batch, Mapping):
        takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
        names = {p.name for p in parameters}
        found = Inputs((), {k: v for k, v in batch.items() if takes_all or k in names})
    elif isinstance(batch, Sequence) and not isinstance(batch, str):
        needed = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        needed = [p for p in needed if p.default is p.empty]
        surplus = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        count = len(needed) if needed and not surplus else 1
        found = Inputs(tuple(batch[:count]), {})
    else:
        raise LdrfError(f"A calibration batch must be a tensor, a tuple or a dict. Got {type(batch).__name__} instead.")
    _check(found, batch)
    return found


def _check(found: Inputs, batch: Any) -> None:
    tensors = found.tensors()
    if not tensors:
        raise LdrfError(
            "A calibration batch must hold at least one tensor the model takes. "
            f"Got {type(batch).__name__} with nothing usable instead."
        )
    sizes = {len(t) if t.ndim else 0 for t in tensors}
    if len(sizes) > 1 or 0 in sizes:
        raise LdrfError(
            "All tensors of a calibration batch must have the same, non-zero number of rows. "
            f"Got {sorted(sizes)} instead."
        )


def chunked(model: nn.Module, batches: Iterable[Any], rows: int) -> Iterator[Inputs]:
    """Split every batch into pieces of at most ``rows`` examples, as float32 where it is floating point."""
    if isinstance(batches, Tensor):
        batches = [batches]
    if not isinstance(batches, Iterable):
        raise LdrfError(f"The calibration batches must be an iterable. Got {type(batches).__name__} instead.")
    for batch in batches:
        whole = read_inputs(model, batch)
        for start in range(0, whole.rows, rows):
            part = slice(start, start + rows)
            yield whole.map(lambda t: _to_float32(t[part]))  # noqa: B023


def _to_float32(tensor: Tensor) -> Tensor:
    return tensor.to(torch.float32) if tensor.is_floating_point() else tensor
