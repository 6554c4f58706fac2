"""What residual branches give on average, and whether the model runs without them as its graph says."""

import copy
from collections.abc import Collection
from dataclasses import replace

import torch
from torch import Tensor, nn

from ldrf.calibration.calibration_set import Calibration
from ldrf.inputs import Inputs
from ldrf.runtime.device import exact
from ldrf.runtime.processes import sum_all
from ldrf.tracing.interpreter import Weights
from ldrf.tracing.lean_run import input_values, run_lean
from ldrf.tracing.trace import Trace
from ldrf.units.branches import Branch, outermost, residual_branches, without
from ldrf.units.left_out import StandIn, constant_tensors, leave_out
from ldrf.units.module_surgery import write_tensors
from ldrf.units.trial import gap, graph_values, outputs_of
from ldrf.units.unit import Unit

SAME = 1e-3  # how far a model without a branch may be from its graph, relative to the largest output
ROWS = 3  # examples of such a trial: another number than that of the trace


def droppable_branches(
    trace: Trace,
    dense: Weights,
    model: nn.Module,
    calibration: Calibration,
    units: tuple[Unit, ...],
    protected: Collection[str],
) -> tuple[Branch, ...]:
    """Residual branches that can be left out, with the mean of what they add; ``model`` is ldrf's own copy."""
    few = calibration.example.first(ROWS).to(dense.device)
    found = _as_returned(model, few, tuple(residual_branches(trace, model, units, protected)))
    branches = branch_means(trace, dense, calibration, found)
    if _runs_without(trace, dense, model, few, outermost(branches)) and len(outermost(branches)) == len(branches):
        return branches
    return tuple(branch for branch in branches if _runs_without(trace, dense, model, few, (branch,)))


@torch.no_grad()
def branch_means(
    trace: Trace, dense: Weights, calibration: Calibration, branches: tuple[Branch, ...]
) -> tuple[Branch, ...]:
    """The branches with the mean per channel of what they give on all images of the dense network."""
    ends = {branch.end: branch.constant for branch in branches}
    sums: dict[str, Tensor] = {}
    for index in calibration.own() if ends else ():
        chunk = calibration.chunks[index]
        values = input_values(trace, chunk, dense.device)
        run_lean(trace, dense, 0, 1 + max(trace.index(end) for end in ends), values, ends)
        for end, constant in ends.items():
            others = [dim for dim in range(constant.dims) if dim != constant.dim]
            mean = exact(values[end]).mean(others).cpu() * chunk.rows
            sums[end] = sums[end] + mean if end in sums else mean
    images = sum(calibration.sizes)
    means = {end: (total / images).float() for end, total in sum_all(sums).items()}
    return tuple(replace(b, constant=replace(b.constant, values=means[b.end])) for b in branches)


def _as_returned(model: nn.Module, few: Inputs, branches: tuple[Branch, ...]) -> tuple[Branch, ...]:
    """The branches whose last module gives a tensor, alone or as the only one of a tuple, as it is to be given."""
    items: dict[str, int] = {}
    handles = []
    for stand_in in (s for branch in branches for s in branch.stand_ins if s.holder is not None):

        def note(module: nn.Module, inputs: object, output: object, name: str = stand_in.module) -> None:
            if isinstance(output, Tensor):
                items[name] = 0
            elif (
                isinstance(output, tuple)
                and isinstance(output[0], Tensor)
                and not any(o is not None for o in output[1:])
            ):
                items[name] = len(output)

        handles.append(model.get_submodule(stand_in.module).register_forward_hook(note))
    try:
        outputs_of(model, few)
    finally:
        for handle in handles:
            handle.remove()

    def known(stand_in: StandIn) -> StandIn:
        return stand_in if stand_in.holder is None else replace(stand_in, items=items[stand_in.module])

    return tuple(
        replace(branch, stand_ins=tuple(known(s) for s in branch.stand_ins))
        for branch in branches
        if all(s.holder is None or s.module in items for s in branch.stand_ins)
    )


def _runs_without(trace: Trace, dense: Weights, model: nn.Module, few: Inputs, branches: tuple[Branch, ...]) -> bool:
    """Whether the model without these branches gives what its graph gives without them."""
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    copied = copy.deepcopy(model, shared)  # tensors are replaced, none is written in
    for branch in branches:
        leave_out(copied, branch.stand_ins)
        write_tensors(copied, constant_tensors(branch.stand_ins, branch.constant.values, copied))
    values = graph_values(trace, without(dense, branches), input_values(trace, few, dense.device))
    if values is None:
        return False
    return gap(outputs_of(copied, few), [values[n] for n in trace.outputs if isinstance(values.get(n), Tensor)]) <= SAME
