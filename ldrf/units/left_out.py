"""Modules of a branch that is left out: they keep their names and compute nothing, and a constant is added instead."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn

from ldrf.tracing.interpreter import read_tensor

MOST = 64  # values that a module returns at once


@dataclass(frozen=True)
class StandIn:
    """What stands where a module of a left-out branch was.

    The last module of a branch names its ``holder``, the tensor that keeps the constant. Modules before it hand an
    empty tensor on. ``dim`` is where the channels lie. ``items`` counts what the module returned, where that was a
    tuple of a tensor and nothing else, as of attention.
    """

    module: str
    dim: int
    holder: str | None = None
    items: int = 0


class LeftOut(nn.Module):
    """A module that is left out: it has the tensors, children and numbers of the one whose place it takes."""

    def __init__(self, module: nn.Module, dim: int, holder: str | None, items: int) -> None:
        super().__init__()
        vars(self).update(vars(module))
        self.left_out = dim, holder, items

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The constant in the shape of what is given; without a constant, no channels at all."""
        dim, holder, items = self.left_out
        given = next(value for value in (*args, *kwargs.values()) if isinstance(value, Tensor))
        shape = list(given.shape)
        if holder is None:  # a tensor of its own: an activation in place must not reach what was given
            shape[dim] = 0
            value = given.new_zeros(shape)
        else:
            constant = read_tensor(self, holder).flatten()
            constant = constant if constant.dtype == given.dtype else constant.to(given.dtype)
            shape[dim] = len(constant)
            flat = constant.view([-1 if place == dim else 1 for place in range(given.ndim)])
            value = flat.expand(shape).clone()  # sums in place write here
        return (value, *[None] * (items - 1)) if items else value

    def extra_repr(self) -> str:
        return "left out"


def leave_out(model: nn.Module, stand_ins: Iterable[StandIn]) -> None:
    """Put stand-ins into ``model`` itself. Their tensors are empty but for the holder of the constant."""
    for stand_in in stand_ins:
        path, _, leaf = stand_in.module.rpartition(".")
        module, parent = model.get_submodule(stand_in.module), model.get_submodule(path)
        holder = None if stand_in.holder is None else stand_in.holder.removeprefix(f"{stand_in.module}.")
        for name, part in module.named_modules():
            _empty(part, name, holder)
        setattr(parent, leaf, LeftOut(module, stand_in.dim, holder, stand_in.items))


def stand_ins_of(model: nn.Module) -> list[StandIn]:
    """The stand-ins in a model, in the order in which they are to be put into a dense one."""
    stand_ins: list[StandIn] = []
    for name, module in model.named_modules():
        if isinstance(module, LeftOut) and not any(name.startswith(f"{s.module}.") for s in stand_ins):
            dim, holder, items = module.left_out
            stand_ins.append(StandIn(name, dim, None if holder is None else f"{name}.{holder}", items))
    return stand_ins


def read_stand_ins(entries: Any, model: nn.Module) -> list[StandIn]:
    """Stand-ins as a file says them. Each must be of a module of ``model``, with its holder inside: ValueError else."""
    modules, parameters = dict(model.named_modules()), dict(model.named_parameters())
    stand_ins = []
    for entry in entries if isinstance(entries, list) else [entries]:
        if not isinstance(entry, dict) or entry.keys() != {f.name for f in fields(StandIn)}:
            raise ValueError("it does not say which modules are left out")
        stand_in = StandIn(**entry)
        numbers = type(stand_in.dim) is int and type(stand_in.items) is int and 0 <= stand_in.items < MOST
        inside = stand_in.holder is None or (
            stand_in.holder in parameters and stand_in.holder.startswith(f"{stand_in.module}.")
        )
        if not numbers or not stand_in.module or stand_in.module not in modules or not inside:
            raise ValueError(f"it has no module '{stand_in.module}' that can be left out")
        stand_ins.append(stand_in)
    return stand_ins


def _empty(module: nn.Module, path: str, holder: str | None) -> None:
    """Empty a module's own tensors; of a weight that holds the constant one column is left."""
    for leaf, tensor in (*module._parameters.items(), *module._buffers.items()):
        if tensor is None or not tensor.ndim:
            continue
        left = tensor.detach()[:0]
        if f"{path}.{leaf}".lstrip(".") == holder:
            left = tensor.detach()[(slice(None), *[slice(0, 1)] * (tensor.ndim - 1))]
        left = left.clone(memory_format=torch.contiguous_format)
        if leaf in module._parameters:
            module._parameters[leaf] = nn.Parameter(left, tensor.requires_grad)
        else:
            module._buffers[leaf] = left


def constant_tensors(stand_ins: Iterable[StandIn], values: Tensor, like: nn.Module) -> dict[str, Tensor]:
    """The constant [n] as the tensor that keeps it, by name."""
    holders = [s.holder for s in stand_ins if s.holder is not None]
    return {name: values.view([-1, *[1] * (like.get_parameter(name).ndim - 1)]) for name in holders}
