"""A copy of a model that is traced and thrown away: tracing may leave symbols in what a model remembers."""

import copy
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ldrf.inputs import Inputs
from ldrf.runtime.randomness import same_random_numbers

PLAIN = (Tensor, int, float, str, torch.SymInt, torch.SymFloat, torch.SymBool)


@torch.no_grad()
def throwaway_copy(model: nn.Module, example: Inputs) -> nn.Module:
    """A copy with the same parameters that ran last on a single example, or on all where their number is fixed.

    A model may remember the shape it saw last, as detectors do. Compared with that of the trace, it fixes the batch.
    """
    shared = {id(parameter): parameter for parameter in model.parameters()}
    copied = without_cache(copy.deepcopy(model, dict(shared)))
    try:
        with same_random_numbers():
            (example if example.fixed else example.map(lambda t: t[:1] if t.ndim else t)).call(copied)
    except Exception:  # it cannot take one example
        copied = without_cache(copy.deepcopy(model, dict(shared)))
    return copied


def without_cache(model: nn.Module) -> nn.Module:
    """The model itself, told to keep no keys and values for the next word, as transformers' models do by default."""
    for module in model.modules():
        config = getattr(module, "config", None)
        if getattr(config, "use_cache", None) is True:
            config.use_cache = False  # pyright: ignore[reportOptionalMemberAccess]
    return model


@contextmanager
def plain_outputs(model: nn.Module) -> Iterator[None]:
    """Within, the outputs are without objects that are no tensors, numbers or words, such as a cache."""
    forward = model.forward

    @functools.wraps(forward)
    def plain(*args: Any, **kwargs: Any) -> Any:
        return pytree.tree_map(lambda v: v if isinstance(v, PLAIN) else None, forward(*args, **kwargs))

    with lent_forward(model, plain):
        yield


@contextmanager
def lent_forward(model: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """Within, the model is called by another ``forward``; afterwards it is as it was."""
    before = vars(model).get("forward")
    vars(model)["forward"] = forward
    try:
        yield
    finally:
        if before is None:
            del vars(model)["forward"]
        else:
            vars(model)["forward"] = before
