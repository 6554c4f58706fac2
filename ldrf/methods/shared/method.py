"""What a pruning method is: how a unit's neurons are chosen and its weights found, with all else shared."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ldrf.calibration.network import Network
from ldrf.config import Allocation, PruneConfig
from ldrf.errors import LdrfError
from ldrf.inputs import labels_of
from ldrf.planning.findings import Findings
from ldrf.reconstruction.lockstep import Lockstep
from ldrf.reconstruction.unit_solver import Reconstruction
from ldrf.units.unit import Unit

# (dense and slim network at the unit's producer, the unit, its width) -> the neurons that stay and their weights
Step = Callable[[Lockstep, Unit, int], Reconstruction]


@dataclass(frozen=True)
class Method:
    """Stage 2 of a method: ``begin`` looks at the findings once and returns what solves one unit after the other.

    To add one, put a file with an ``ENTRY`` into ``ldrf/methods``, or call ``ldrf.registry.METHODS.register`` from
    outside. ``title`` and ``colour`` are for tables and charts.
    """

    name: str
    begin: Callable[[Network, Findings, PruneConfig], Step]
    title: str = ""
    colour: str = "#777777"
    allocation: Allocation = "uniform"  # how widths are found when the settings do not say
    labelled: bool = False
    picks_by_curves: bool = False  # needs the removal curve of every unit it cuts
    repairs_all: bool = False  # also whole units behind a cut one, and the last layer


def take_labels(method: Method, model: nn.Module, batches: Iterable[Any]) -> tuple[Iterable[Any], Tensor | None]:
    """The batches, and for a method that needs them all their labels in order [images]."""
    if not method.labelled or not isinstance(batches, Iterable):
        return batches, None
    batches = [batches] if isinstance(batches, Tensor) else list(batches)
    per_batch = [labels_of(model, batch) for batch in batches]
    labels = [part for part in per_batch if part is not None]
    if len(labels) < len(per_batch):
        raise LdrfError(
            f"Method '{method.name}' needs batches with labels, whole numbers [batch]: "
            "tuples (inputs, labels) or dicts with 'labels'."
        )
    return batches, torch.cat(labels) if labels else None
