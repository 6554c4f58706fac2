"""From whatever a data loader yields to the arguments of one call of the model."""

import inspect
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ldrf.errors import LdrfError

LABELS = ("labels", "label", "label_ids")  # as Hugging Face's data loaders and models call them
LARGEST = 2**29  # elements of an input made up from what a folder says: two gigabytes


@dataclass(frozen=True)
class Inputs:
    """The positional and keyword arguments of one forward call, all with the same leading batch size."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    fixed: bool = False  # whether the model, or its graph, takes exactly so many rows

    def tensors(self) -> list[Tensor]:
        return [v for v in (*self.args, *self.kwargs.values()) if isinstance(v, Tensor)]

    @property
    def rows(self) -> int:
        return len(self.tensors()[0])

    def map(self, change: Any) -> "Inputs":
        """The same arguments with ``change`` applied to each tensor."""

        def changed(value: Any) -> Any:
            return change(value) if isinstance(value, Tensor) else value

        kwargs = {key: changed(value) for key, value in self.kwargs.items()}
        return Inputs(tuple(map(changed, self.args)), kwargs, self.fixed)

    def first(self, rows: int) -> "Inputs":
        """The first ``rows`` of them, or all where their number is fixed."""
        return self if self.fixed else self.map(lambda t: t[:rows])

    def to(self, device: torch.device) -> "Inputs":
        """The same arguments on a device."""
        return self.map(lambda t: t.to(device, non_blocking=t.is_pinned() if t.device.type == "cpu" else False))

    def call(self, model: nn.Module) -> Any:
        return model(*self.args, **self.kwargs)

    def described(self) -> dict[str, Any]:
        """Shapes without the batch and dtypes, ready for JSON; :func:`made_up_inputs` is the way back."""
        return {
            "args": [_described(v) for v in self.args],
            "kwargs": {k: _described(v) for k, v in self.kwargs.items()},
            **({"rows": self.rows} if self.fixed else {}),
        }


def _described(value: Any) -> dict[str, Any]:
    if isinstance(value, Tensor):
        return {"shape": list(value.shape[1:]), "dtype": str(value.dtype).removeprefix("torch.")}
    return {"value": value if isinstance(value, bool | int | float | str) else None}


def made_up_inputs(described: Mapping[str, Any], rows: int, seed: int = 0, device: str = "cpu") -> Inputs:
    """Random inputs of the described shapes: normal where floating point, else 0 or 1; on "meta" they have no data.

    There are ``rows`` of them, unless the number is fixed.
    """
    generator, fixed = torch.Generator().manual_seed(seed), described.get("rows") is not None
    rows = _row_count(described["rows"]) if fixed else rows

    def make(value: Mapping[str, Any]) -> Any:
        if "shape" not in value:
            return value["value"]
        shape, dtype = (rows, *value["shape"]), getattr(torch, value["dtype"], None)
        if not isinstance(dtype, torch.dtype) or math.prod(shape) > LARGEST:
            raise LdrfError(f"Inputs of shape {shape} and dtype '{value['dtype']}' can't be made up: name some data.")
        if device == "meta":
            return torch.empty(shape, dtype=dtype, device="meta")
        if dtype.is_floating_point:
            return torch.randn(shape, generator=generator).to(dtype)
        return torch.randint(0, 2, shape, generator=generator).to(dtype)

    return Inputs(tuple(map(make, described["args"])), {k: make(v) for k, v in described["kwargs"].items()}, fixed)


def _row_count(value: Any) -> int:
    if type(value) is not int or value < 1:
        raise LdrfError(f"The number of rows must be a whole number from 1 up. Got {value!r} instead.")
    return value


def repeated(inputs: Inputs, rows: int) -> Inputs:
    """The rows again and again, up to ``rows`` of them."""
    times = -(-rows // inputs.rows)
    return inputs.map(lambda t: torch.cat([t] * times)[:rows].contiguous())


def regrouped(parts: Iterable[Inputs], rows: int) -> Iterator[Inputs]:
    """The rows of all parts in groups of exactly ``rows``; those at the end that do not fill one are left out."""
    group: list[Inputs] = []
    for part in parts:
        at = 0
        while at < part.rows:
            taken = min(rows - sum(p.rows for p in group), part.rows - at)
            group.append(part.map(lambda t, a=at, b=at + taken: t[a:b]))
            at += taken
            if sum(p.rows for p in group) == rows:
                yield replace(_joined(group), fixed=True)
                group = []


def _joined(parts: list[Inputs]) -> Inputs:
    """One batch of all rows; what is no tensor is taken from the first."""
    if len(parts) == 1:
        return parts[0]

    def join(values: list[Any]) -> Any:
        return torch.cat(values) if isinstance(values[0], Tensor) else values[0]

    args = tuple(join([part.args[i] for part in parts]) for i in range(len(parts[0].args)))
    return Inputs(args, {name: join([part.kwargs[name] for part in parts]) for name in parts[0].kwargs})


def main_output(outputs: Any) -> Tensor:
    """What a model is judged by: its first output, or the one called 'logits'."""
    if isinstance(outputs, Mapping):
        outputs = outputs.get("logits", next(iter(outputs.values())))
    elif isinstance(outputs, Sequence):
        outputs = outputs[0]
    if not isinstance(outputs, Tensor):
        raise LdrfError(f"The model must give a tensor, or a tuple or dict of them. Got {type(outputs).__name__}.")
    return outputs


def read_inputs(model: nn.Module, batch: Any) -> Inputs:
    """Pick from ``batch`` what ``model.forward`` takes; labels and other surplus entries are left out."""
    if isinstance(batch, Inputs):
        return batch
    inputs = read_call(model, batch)
    if isinstance(batch, Mapping):
        _check_names(inputs, batch, _parameters(model))
    _check(inputs, batch)
    return inputs


def read_call(model: nn.Module, batch: Any) -> Inputs:
    """The same without a look at what the arguments are: they may be lists of images, or objects."""
    parameters = _parameters(model)
    if isinstance(batch, Tensor):
        inputs = Inputs((batch,), {})
    elif isinstance(batch, Mapping):
        takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
        names = {p.name for p in parameters}
        needed = {p.name for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD}
        inputs = Inputs(
            (), {k: v for k, v in batch.items() if k in needed or ((takes_all or k in names) and k not in LABELS)}
        )
    elif isinstance(batch, Sequence) and not isinstance(batch, str):
        needed = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        needed = [p for p in needed if p.default is p.empty]
        surplus = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        count = len(needed) if needed and not surplus else 1
        inputs = Inputs(tuple(batch[:count]), {})
    else:
        raise LdrfError(f"A calibration batch must be a tensor, a tuple or a dict. Got {type(batch).__name__} instead.")
    return inputs


def as_one_list(batch: Any) -> Inputs | None:
    """A list of images that may differ in size, as detectors take it, read as a single argument; None of others."""
    listed = isinstance(batch, list | tuple) and bool(batch) and all(isinstance(t, Tensor) for t in batch)
    alike = listed and len({t.ndim for t in batch}) == 1 and all(t.is_floating_point() for t in batch)
    return Inputs((list(batch),), {}) if alike else None


def _parameters(model: nn.Module) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(model.forward).parameters.values())
    except (ValueError, TypeError) as problem:
        raise LdrfError(
            f"The forward of {type(model).__name__} cannot be looked into: pass the model as it was before "
            "torch.jit.script or torch.jit.trace."
        ) from problem


def _check_names(inputs: Inputs, batch: Mapping[Any, Any], parameters: list[inspect.Parameter]) -> None:
    """Raise with both lists of names where the model needs what the batch does not have, or takes nothing of it."""
    named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    lacking = [p.name for p in named if p.default is p.empty and p.name not in inputs.kwargs]
    if lacking or not inputs.tensors():
        takes, given = (", ".join(map(str, names)) or "nothing" for names in ([p.name for p in named], batch))
        raise LdrfError(f"The names in a calibration batch must be those the model takes ({takes}). Got {given}.")


def _check(inputs: Inputs, batch: Any) -> None:
    tensors = inputs.tensors()
    if not tensors and any(isinstance(t, Tensor) for t in tree_leaves((inputs.args, inputs.kwargs))):
        raise LdrfError(
            "The model takes its tensors in a list or dict, as detectors do, so it is not traced whole: name the "
            "submodules to prune by parts=, such as parts=['backbone']."
        )
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
    """Every batch split into pieces of at most ``rows`` examples, as :func:`in_pieces` does it."""
    for whole in read_batches(model, batches):
        yield from in_pieces(whole, rows)


def read_batches(model: nn.Module, batches: Iterable[Any]) -> Iterator[Inputs]:
    """What ``model`` takes of every batch."""
    if isinstance(batches, Tensor):
        batches = [batches]
    if not isinstance(batches, Iterable):
        raise LdrfError(f"The calibration batches must be an iterable. Got {type(batches).__name__} instead.")
    for batch in batches:
        yield read_inputs(model, batch)


def in_pieces(whole: Inputs, rows: int) -> Iterator[Inputs]:
    """Pieces of at most ``rows`` examples in the host's memory, as float32 where it is floating point."""
    for start in range(0, whole.rows, rows):
        part = slice(start, start + rows)
        yield whole.map(lambda t: _to_float32(t[part]))  # noqa: B023


def _to_float32(tensor: Tensor) -> Tensor:
    return (tensor.to("cpu", torch.float32) if tensor.is_floating_point() else tensor.cpu()).contiguous()


def read_labels(batch: Any) -> Tensor:
    """The labels of a batch: its entry ``labels`` or ``label``, or the last of a tuple."""
    labels = None
    if isinstance(batch, Mapping):
        labels = batch.get("labels", batch.get("label"))
    elif isinstance(batch, Sequence) and len(batch) > 1:
        labels = batch[-1]
    if not isinstance(labels, Tensor) or labels.ndim != 1:
        raise LdrfError("Evaluating needs batches with labels: tuples (images, labels) or dicts with 'labels'.")
    return labels


def labels_of(model: nn.Module, batch: Any) -> Tensor | None:
    """The labels of one batch: whole numbers, one a row, that the model itself does not take."""
    inputs = read_inputs(model, batch)
    try:
        labels = read_labels(batch)
    except LdrfError:
        return None
    whole = not labels.is_floating_point() and labels.dtype != torch.bool
    taken = any(labels is given for given in inputs.tensors())
    return labels.long().cpu() if whole and not taken and len(labels) == inputs.rows else None
