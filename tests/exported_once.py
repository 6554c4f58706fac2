"""torch.export for tests: a model like one exported before gets a copy of its graph, in a hundredth of the time.

Two models are alike if they pickle to the same bytes apart from the values of their parameters and buffers, which a
graph does not hold. A model that cannot be pickled, such as one of a class within a test, is exported every time.
"""

import copy
import io
import pickle
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import getattr_static
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_leaves

from ldrf.inputs import Inputs

Export = Callable[..., Any]


@dataclass(frozen=True)
class Program:
    """What ldrf reads of a torch.export.ExportedProgram."""

    graph: fx.Graph
    graph_signature: Any
    constants: dict[str, Any]

    def copied(self) -> "Program":
        return Program(copy.deepcopy(self.graph), self.graph_signature, self.constants)


class _Shapes(pickle.Pickler):
    """Pickles a model with the kinds of its parameters and buffers in place of their values."""

    def __init__(self, file: io.BytesIO, model: nn.Module) -> None:
        super().__init__(file)
        tensors = {id(t): t for t in (*model.parameters(), *model.buffers())}
        self._numbers = {known: number for number, known in enumerate(tensors)}  # a shared tensor has one number

    def persistent_id(self, obj: Any) -> Any:
        if id(obj) not in self._numbers:
            return None
        return self._numbers[id(obj)], tuple(obj.shape), obj.stride(), str(obj.dtype), obj.requires_grad


def likeness(model: nn.Module, example: Inputs) -> tuple[Any, ...] | None:
    """What the graph of ``model`` depends on, or None where that cannot be told."""
    pickled = io.BytesIO()
    try:
        _Shapes(pickled, model).dump(model)
    except Exception:
        return None
    code = tuple(type(module).forward for module in model.modules())  # a test may patch a class
    arguments = tree_leaves((example.args, example.kwargs))
    given = tuple((tuple(a.shape[1:]), str(a.dtype)) if isinstance(a, Tensor) else repr(a) for a in arguments)
    rows = example.rows if example.fixed else None
    return pickled.getvalue(), code, given, rows, tuple(example.kwargs), torch.is_grad_enabled()


class ExportedOnce:
    """``export_program`` with a memory; ``hits`` counts the exports that it saved."""

    def __init__(self, export: Export) -> None:
        self._export, self._known, self.hits = export, dict[Any, Program](), 0

    def __call__(self, model: nn.Module, example: Inputs, decomposed: bool = False) -> Any:
        like = likeness(model, example)
        if like is None:
            return self._export(model, example, decomposed)
        key = *like, decomposed
        if key in self._known:
            self.hits += 1
            return self._known[key].copied()
        program = self._export(model, example, decomposed)
        if not any(node.op == "get_attr" for node in program.graph.nodes):  # these hold tensors or graphs of the model
            self._known[key] = Program(copy.deepcopy(program.graph), program.graph_signature, dict(program.constants))
        return program


# Attributes that say how wide a layer is, or hold its tensors and parts.
SIZES = (int, tuple, list, dict, set, Tensor, nn.Module)


def _is_option(value: Any) -> bool:
    return isinstance(value, bool) or not isinstance(value, SIZES)


def structure(model: nn.Module, example: Inputs) -> tuple[Any, ...] | None:
    """What a model's code depends on apart from its widths, or None for a class that a test makes for itself."""
    kinds = tuple((name, type(module)) for name, module in model.named_modules())
    if any("<locals>" in kind.__qualname__ for _, kind in kinds):
        return None
    code = tuple(getattr_static(kind, "forward", None) for _, kind in kinds)  # a scripted class has none to give
    options = tuple(repr(v) for module in model.modules() for v in vars(module).values() if _is_option(v))
    given = tuple(a.ndim if isinstance(a, Tensor) else repr(a) for a in tree_leaves((example.args, example.kwargs)))
    return kinds, code, options, given, tuple(example.kwargs)


class CheckedOnce:
    """An export whose program nobody reads: done once for the networks that differ in their widths alone."""

    def __init__(self, export: Export) -> None:
        self._export, self._checked = export, set[Any]()

    def __call__(self, model: nn.Module, example: Inputs) -> None:
        like = structure(model, example)
        if like is None or like not in self._checked:
            self._export(model, example)  # raises where it cannot be exported, and is then tried again
            self._checked.add(like)


@contextmanager
def operators_looked_up_once() -> Iterator[None]:
    """Within, torch.export takes a tenth of a second less, whatever is exported.

    For every export it looks up all operators once for each library that has some: here only where there are more than
    before. And for each of them it evaluates type hints: here such as remember what they were evaluated to.
    """
    from torch._export import utils

    looked_up, operators = getattr(utils, "_materialize_cpp_cia_ops", None), 0

    def look_up_new() -> None:
        nonlocal operators
        there = len(torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd"))
        if looked_up and there != operators:
            looked_up()
            operators = there

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch._ops.Callable", typing.Callable)
        if looked_up:
            patch.setattr(utils, "_materialize_cpp_cia_ops", look_up_new)
        yield
