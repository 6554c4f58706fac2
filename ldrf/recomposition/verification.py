"""Checks of a slim model before it is handed out: it runs, computes what was solved for, exports and trains."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ldrf.calibration.network import Network
from ldrf.errors import LdrfError
from ldrf.files.tensor_files import first_odd
from ldrf.inputs import Inputs, repeated
from ldrf.recomposition.recompose import output_statistics, recompose
from ldrf.runtime.randomness import same_random_numbers
from ldrf.tracing.choices import Choices
from ldrf.tracing.export import export_program, working_copy
from ldrf.tracing.interpreter import Weights
from ldrf.tracing.lean_run import input_values, run_lean
from ldrf.units.trial import gap, outputs_of

SOLVED = 1e-3  # how far the slim model may be from the weights that were solved for, relative to the largest output
WHOLE = 1e-4  # and, at full width, from the dense model
ROUNDING = 100  # or so many times as far as the dense model is from its own graph, up to the first


@torch.no_grad()
def verify(network: Network, slim: Weights, model: nn.Module) -> None:
    """Raise unless ``model`` runs at another batch size, gives what ``slim`` says in the dense shapes, exports again
    and trains; and unless the same steps at full width give back the dense model."""
    home = network.home
    copied, dense = working_copy(model, home), working_copy(network.model, home)
    chunk = (network.example if network.example.fixed else _at_another_size(network.example)).to(home)
    choices = Choices()
    try:
        with choices.noted():
            outputs = _outputs(copied, chunk)
        wanted = _outputs(dense, chunk)
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
    if [t.shape for t in outputs] != [t.shape for t in wanted]:
        raise LdrfError(f"The slim {type(model).__name__} gives other shapes than the dense one: it is not handed out.")
    with choices.followed():
        far, precision = gap(outputs, _traced(network, slim, chunk)), _precision(model)
    if not far < max(SOLVED, precision):
        raise LdrfError(
            f"The slim {type(model).__name__} differs from what was solved for by {far:.2g}: not handed out."
        )
    if chunk.fixed:
        _check_other_sizes(copied, dense, chunk)
    few = chunk.first(2)
    _check_whole(network, dense, few, precision)
    _check_exports(copied, few)
    training = _runs_in_training(dense, few)
    problem = _training_problem(copied.train(training), few)
    if problem and not _training_problem(dense.train(training), few):
        raise LdrfError(
            f"The slim {type(model).__name__} cannot be trained, so it is not handed out: {problem}"
        ) from problem


def _at_another_size(example: Inputs) -> Inputs:
    """The same examples in another number than that of the trace."""
    return repeated(example, example.rows - 1 if example.rows > 3 else example.rows + 1)


def _check_other_sizes(slim: nn.Module, dense: nn.Module, example: Inputs) -> None:
    """Raise where only the graph takes one batch size, and the slim model does not take another as the dense one."""
    other = _at_another_size(example)
    wanted = outputs_of(dense, other)
    if wanted is None:
        return
    outputs = outputs_of(slim, other)
    if outputs is None or [t.shape for t in outputs] != [t.shape for t in wanted]:
        raise LdrfError(
            f"The slim {type(slim).__name__} does not take {other.rows} examples as the dense one does: it is not "
            "handed out."
        )


def _traced(network: Network, weights: Weights, chunk: Inputs) -> list[Tensor]:
    """Outputs of the traced graph with these weights."""
    trace, weights = network.trace, replace(weights, precision="float32")  # a check of the weights, not of rounding
    with same_random_numbers():
        values = run_lean(trace, weights, 0, len(trace.nodes), input_values(trace, chunk, weights.device))
    return [values[name] for name in trace.outputs if isinstance(values.get(name), Tensor)]


def _check_whole(network: Network, dense: nn.Module, few: Inputs, precision: float) -> None:
    """Raise unless every layer folded and restored at its full width computes what the dense model computes."""
    whole = {unit.name: torch.arange(unit.width) for unit in network.units}
    nodes = {la.node for la in network.trace.layers if network.trace.called.get(la.weight, 1) == 1}
    statistics = output_statistics(network.trace, network.dense, nodes, network.calibration, examples=1)
    restored = working_copy(recompose(network, network.dense, nodes, whole, statistics), network.home)
    choices = Choices()
    with choices.noted():
        wanted = _outputs(dense, few)
    with choices.followed():
        far = gap(_outputs(restored, few), wanted)
    with choices.followed():
        rounding = gap(wanted, _traced(network, network.dense, few))
    if not far <= max(WHOLE, precision, min(ROUNDING * rounding, SOLVED)):
        raise LdrfError(
            f"{type(dense).__name__} is not the same when its layers are taken apart and put together again at full "
            f"width (its outputs differ by {far:.2g}), so no slim model is handed out."
        )


def _check_exports(model: nn.Module, few: Inputs) -> None:
    """Raise unless torch.export takes the slim model."""
    try:
        export_program(model, few)
    except LdrfError as problem:
        raise LdrfError(
            f"The slim {type(model).__name__} does not export any more, so it is not handed out: {problem}"
        ) from problem


def _runs_in_training(dense: nn.Module, few: Inputs) -> bool:
    """Whether the dense model takes such inputs in training mode; a detector wants boxes there, too."""
    try:
        few.call(dense.train())
    except Exception:
        return False
    return True


@torch.enable_grad()
def _training_problem(model: nn.Module, chunk: Inputs) -> Exception | None:
    """Why no gradient step goes through the whole model, or None; one that gives no gradients at all may."""
    try:
        outputs = [t for t in _tensors(chunk.call(model.requires_grad_(True))) if t.requires_grad]
        if outputs:
            sum((t.square().mean() for t in outputs), torch.zeros(())).backward()
            torch.optim.SGD(model.parameters(), 1e-6).step()
    except Exception as problem:
        return problem
    return None


def _precision(model: nn.Module) -> float:
    """How far outputs may differ because of the kind of numbers the model is kept in."""
    return 8 * max(torch.finfo(p.dtype).eps for p in model.parameters() if p.is_floating_point())


def _outputs(model: nn.Module, chunk: Inputs) -> list[Tensor]:
    with same_random_numbers():
        return _tensors(chunk.call(model))


def _tensors(outputs: Any) -> list[Tensor]:
    return [t for t in pytree.tree_leaves(outputs) if isinstance(t, Tensor)]
