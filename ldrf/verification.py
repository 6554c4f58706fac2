"""The last look at a slim model before it is handed out: it runs, computes what was solved for, and can be trained."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ldrf.chance import same_chance
from ldrf.errors import LdrfError
from ldrf.forward import input_values, run_lean
from ldrf.inputs import Inputs
from ldrf.interpreter import Weights
from ldrf.network import Network
from ldrf.program import working_copy
from ldrf.tensor_files import first_odd


@torch.no_grad()
def verify(network: Network, slim: Weights, model: nn.Module, tolerance: float = 1e-3) -> None:
    """Raise unless ``model`` runs at another batch size and gives what the slim weights say, in the dense shapes."""
    copied = working_copy(model)
    chunk = network.example.map(lambda t: t[: max(1, len(t) - 1)])
    try:
        with same_chance():
            outputs = _tensors(chunk.call(copied))
        shapes = [t.shape for t in _tensors(chunk.call(working_copy(network.model)))]
    except Exception as problem:
        raise LdrfError(
            f"The slim {type(model).__name__} does not run, so it is not handed out: {problem}"
        ) from problem
    finite = {name for name, t in network.model.state_dict().items() if bool(torch.isfinite(t).all())}
    odd = first_odd(model.state_dict(), finite)
    if odd is not None:
        raise LdrfError(
            f"The slim {type(model).__name__} is not handed out: numbers of '{odd}' do not fit "
            f"{model.state_dict()[odd].dtype}; prune a float32 copy."
        )
    if [t.shape for t in outputs] != shapes:
        raise LdrfError(f"The slim {type(model).__name__} gives other shapes than the dense one: it is not handed out.")
    trace = network.trace
    with same_chance():
        values = run_lean(trace, slim, 0, len(trace.nodes), input_values(trace, chunk))
    tolerance = max(tolerance, 8 * max(torch.finfo(p.dtype).eps for p in model.parameters() if p.is_floating_point()))
    expected = [values.get(name) for name in trace.outputs]
    for found, wanted in zip(outputs, expected, strict=False):
        if isinstance(wanted, Tensor) and found.is_floating_point() and found.shape == wanted.shape:
            gap = float((found - wanted).abs().max()) / (float(wanted.abs().max()) + 1e-6)
            if not gap < tolerance:
                raise LdrfError(
                    f"The slim {type(model).__name__} differs from what was solved for by {gap:.2g}: not handed out."
                )
    _check_trains(copied, chunk.map(lambda t: t[:2]))


@torch.enable_grad()
def _check_trains(model: nn.Module, chunk: Inputs) -> None:
    """Raise unless a gradient step goes through the whole slim model; one that gives no gradients at all may."""
    try:
        outputs = [t for t in _tensors(chunk.call(model.requires_grad_(True))) if t.requires_grad]
        if outputs:
            sum((t.square().mean() for t in outputs), torch.zeros(())).backward()
            torch.optim.SGD(model.parameters(), 1e-6).step()
    except Exception as problem:
        raise LdrfError(
            f"The slim {type(model).__name__} cannot be trained, so it is not handed out: {problem}"
        ) from problem


def _tensors(outputs: Any) -> list[Tensor]:
    return [t for t in pytree.tree_leaves(outputs) if isinstance(t, Tensor)]
