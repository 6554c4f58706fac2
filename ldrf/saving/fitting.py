"""Whether saved tensors fit a fresh model, and one another: checked before a model that cannot run is returned."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ldrf.errors import LdrfError, first_line
from ldrf.inputs import made_up_inputs


def check_fits(folder: Path, tensors: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
    """Raise unless the slim tensors cover the dense ``state``, by name, dimensions and kind, and are nowhere larger."""
    unknown = sorted(set(tensors) - set(state))
    if unknown:
        raise LdrfError(f"'{folder}' does not fit this model: it has no tensor '{unknown[0]}'.")
    shared = {name: tensor.data_ptr() for name, tensor in state.items()}
    covered = {shared[name] for name in tensors}
    missing = [name for name, pointer in shared.items() if name not in tensors and pointer not in covered]
    if missing:
        raise LdrfError(f"'{folder}' does not fit this model: it lacks the tensor '{missing[0]}'.")
    for name, slim in tensors.items():
        dense = state[name]
        if slim.ndim != dense.ndim or not all(
            min(d, 1) <= s <= d for s, d in zip(slim.shape, dense.shape, strict=True)
        ):
            raise LdrfError(
                f"'{folder}' does not fit this model: tensor '{name}' must be no larger than {tuple(dense.shape)}. "
                f"Got {tuple(slim.shape)} instead."
            )
        if slim.is_floating_point() != dense.is_floating_point() or slim.is_complex() != dense.is_complex():
            raise LdrfError(
                f"'{folder}' does not fit this model: tensor '{name}' must be of {dense.dtype}. "
                f"Got {slim.dtype} instead."
            )


def check_runs(folder: Path, described: Mapping[str, Any] | None, dense: nn.Module, slim: nn.Module) -> None:
    """Raise where the dense model takes the inputs ``described`` and the slim one does not, or gives other shapes.

    Both run without data, on shapes alone; a model whose code cannot is not checked.
    """
    wanted = _output_shapes(dense, described) if described else None
    if wanted is None or isinstance(wanted, Exception):
        return
    shapes = _output_shapes(slim, described or {})
    if isinstance(shapes, Exception) or shapes != wanted:
        reason = first_line(shapes) if isinstance(shapes, Exception) else "other outputs"
        raise LdrfError(f"'{folder}' does not fit this model: its tensors do not fit one another ({reason}).")


@torch.no_grad()
def _output_shapes(model: nn.Module, described: Mapping[str, Any]) -> list[torch.Size] | Exception:
    """Shapes of the model's outputs for two examples, or why it does not run."""
    tensors = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers(remove_duplicate=False))
    empty: dict[int, Tensor] = {id(t): torch.empty_like(t, device="meta") for t in tensors.values()}
    try:
        inputs = made_up_inputs(described, 2, device="meta")
        outputs = torch.func.functional_call(
            model, {name: empty[id(t)] for name, t in tensors.items()}, inputs.args, inputs.kwargs
        )
    except Exception as problem:
        return problem
    return [t.shape for t in tree_leaves(outputs) if isinstance(t, Tensor)]
