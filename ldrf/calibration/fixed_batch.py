"""Models that take one number of examples only: their images come in whole batches of that size.

The number may be a constant in the model's code (``x.view(8, -1)``): then the model takes no other. Or the code makes
a plain number of the batch size (``len(list(x))``): then the model takes any, but its graph only the one it was
traced with.
"""

import warnings

from torch import nn

from ldrf.calibration.calibration_set import Calibration
from ldrf.errors import LdrfError, LdrfWarning
from ldrf.inputs import Inputs, repeated
from ldrf.runtime.device import OutOfMemory, model_device
from ldrf.runtime.processes import count
from ldrf.tracing.batch_sizes import SIZES, takes, takes_any_batch
from ldrf.tracing.choices import Choices
from ldrf.tracing.interpreter import Weights
from ldrf.tracing.lean_run import input_values
from ldrf.tracing.trace import Trace
from ldrf.units.trial import MOST, gap, graph_outputs, outputs_of


def in_its_batches(model: nn.Module, calibration: Calibration, held_out: float) -> Calibration:
    """The same images; in batches of the size that was given, where the model takes no other."""
    example, there = calibration.example, model_device(model)
    try:
        few = example.map(lambda t: t[: max(SIZES)]).to(there)
        # That it takes no batch at all is told elsewhere.
        if takes_any_batch(model, few) or (example.rows == calibration.batch and not takes(model, example.to(there))):
            return calibration
    except OutOfMemory:  # so is this, after fewer images at a time were tried
        return calibration
    return _fixed(model, calibration, calibration.batch, held_out)


def graph_takes_any(trace: Trace, dense: Weights, model: nn.Module, example: Inputs) -> bool:
    """Whether the graph computes what the model computes for another number of examples."""
    more = repeated(example, 3 if example.rows != 3 else 4)
    choices = Choices()
    with choices.noted():
        wanted = outputs_of(model, more)
    with choices.followed():
        traced = graph_outputs(trace, dense, input_values(trace, more, dense.device))
    return wanted is None or (traced is not None and gap(wanted, traced) <= MOST)


def in_batches_of_graph(model: nn.Module, calibration: Calibration, held_out: float) -> Calibration:
    """The images in batches of one size, two of them at least where there are two images."""
    size = min(max(calibration.sizes), max(1, calibration.examples // 2))
    return _fixed(model, calibration, size, held_out)


def _fixed(model: nn.Module, calibration: Calibration, size: int, held_out: float) -> Calibration:
    """The images in batches of exactly this size, and a warning where some are left out."""
    name = type(model).__name__
    if count() > 1:
        raise LdrfError(
            f"{name} is traced for one batch size only ({size}), so several processes cannot share its batches: prune "
            "it in one process."
        )
    fixed = calibration.in_batches(size, held_out)
    left = calibration.examples - fixed.examples
    if left:
        warnings.warn(
            f"{name} is traced for one batch size only ({size}), so {left} of {calibration.examples} images, which do "
            "not fill a batch, are left out.",
            LdrfWarning,
            stacklevel=6,
        )
    return fixed
