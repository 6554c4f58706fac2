"""The slim parts of a model written into a copy of the whole, which must still run."""

import copy

import torch
from torch import nn
from torch.utils import _pytree as pytree

from ldrf.calibration.parts import PartsOf
from ldrf.calibration.watching import run_whole
from ldrf.errors import LdrfError, first_line
from ldrf.inputs import Inputs
from ldrf.tracing.export import working_copy


def with_parts(of: PartsOf, slim: nn.Module) -> nn.Module:
    """A copy of the whole model with the slim parts in it; what shares a module or a tensor with them still does."""
    there: dict[int, object] = {id(m): slim.get_submodule(name) for name, m in of.parts.named_modules() if name}
    there |= {id(p): slim.get_parameter(name) for name, p in of.parts.named_parameters()}
    return copy.deepcopy(of.model, there)


def check_whole(of: PartsOf, slim: nn.Module) -> None:
    """Raise unless the slim whole runs on a batch of each shape that was seen, with outputs built as the dense one's.

    How many boxes a detector finds depends on their scores, so their number may be another.
    """
    for inputs in (of.example, *of.others):
        wanted = _built(of.model, inputs)
        try:
            built = _built(slim, inputs)
        except Exception as problem:
            raise LdrfError(
                f"The slim {type(slim).__name__} does not run with its slim parts, so it is not handed out: "
                f"{first_line(problem)} Leave the part that this is about out of parts=, or name one inside it."
            ) from problem
        if built != wanted:
            raise LdrfError(
                f"The slim {type(slim).__name__} gives other outputs than the dense one, so it is not handed out: "
                "layers inside a part may be called from outside it; name a larger part."
            )


@torch.no_grad()
def _built(model: nn.Module, inputs: Inputs) -> tuple[object, list[object]]:
    """How the outputs are put together, and the size of each tensor but for its rows."""
    leaves, form = pytree.tree_flatten(run_whole(working_copy(model), inputs))
    return form, [tuple(v.shape[1:]) if isinstance(v, torch.Tensor) else type(v) for v in leaves]
