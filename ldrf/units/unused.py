"""Layers of a model whose results nothing uses: no traced graph has them, yet the model's code may call them."""

import copy
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import torch
from torch import nn

from ldrf.inputs import Inputs
from ldrf.tracing.trace import Trace
from ldrf.units.unit import Skipped

IDLE = "the model does not call it"
TRAINED = "the model calls it in training only"
UNUSED = "nothing uses its outputs"


def unused_layers(trace: Trace, model: nn.Module, chunk: Inputs) -> tuple[Skipped, ...]:
    """Layers with a weight that no traced call uses, and whether the model calls them all the same."""
    used = {id(p) for name, p in model.named_parameters(remove_duplicate=False) if trace.called.get(name)}
    weights = ((name, getattr(module, "weight", None)) for name, module in model.named_modules())
    known = ((name, weight) for name, weight in weights if isinstance(weight, nn.Parameter) and weight.ndim > 1)
    names = [name for name, weight in known if id(weight) not in used]
    if not names:
        return ()
    with calls(model, names) as called, torch.no_grad():
        chunk.call(model)
    idle = [name for name in names if name not in called.begun]
    trained = called_in_training(model, idle, chunk).begun if idle else ()
    return tuple(
        Skipped(name, UNUSED if name in called.begun else TRAINED if name in trained else IDLE) for name in names
    )


def called_in_training(model: nn.Module, names: Iterable[str], chunk: Inputs) -> "Calls":
    """Which of the named modules a copy of the model calls in training mode, as far as it runs there."""
    copied = copy.deepcopy(model).train()
    with calls(copied, names) as called, torch.no_grad(), suppress(Exception):
        chunk.call(copied)
    return called


@dataclass(frozen=True)
class Calls:
    """Names of modules that were called, and of those that came to their end."""

    begun: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)


@contextmanager
def calls(model: nn.Module, names: Iterable[str]) -> Iterator[Calls]:
    """Which of the named modules are called within."""
    called, handles = Calls(), []
    for name in names:
        module = model.get_submodule(name)
        handles.append(module.register_forward_pre_hook(lambda *_, name=name: called.begun.add(name)))
        handles.append(module.register_forward_hook(lambda *_, name=name: called.ended.add(name)))
    try:
        yield called
    finally:
        for handle in handles:
            handle.remove()
