"""What a pruning method is: how a unit's neurons are chosen and its weights found, with all else shared."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ldrf.algebra.neuron_removal import Removal
from ldrf.calibration.network import Network
from ldrf.calibration.survey import Survey
from ldrf.config import Allocation, PruneConfig
from ldrf.errors import LdrfError
from ldrf.inputs import labels_of
from ldrf.planning.selection import select
from ldrf.reconstruction.lockstep import Lockstep
from ldrf.reconstruction.unit_solver import Reconstruction, reconstruct
from ldrf.units.unit import Unit

# (dense and slim network at the unit's producer, the unit, its width) -> the neurons that stay and their weights
Step = Callable[[Lockstep, Unit, int], Reconstruction]


@dataclass(frozen=True)
class Findings:
    """What stage 1 learned of the dense network; labels only where the method asks for them [images]."""

    network: Network
    surveys: dict[str, Survey]
    removals: dict[str, Removal]
    metrics: dict[str, Tensor]
    labels: Tensor | None = None


@dataclass(frozen=True)
class Method:
    """Stage 2 of a method: ``begin`` looks at the findings once and returns what solves one unit after the other."""

    name: str
    begin: Callable[[Findings, PruneConfig], Step]
    allocation: Allocation = "uniform"  # how widths are found when the settings do not say
    labelled: bool = False
    picks_by_curves: bool = False  # needs the removal curve of every unit it cuts
    repairs_all: bool = False  # also whole units behind a cut one, and the last layer


def _begin(findings: Findings, config: PruneConfig) -> Step:
    """Select, then solve R' and Q' (Eqn. 6, Alg. 1 lines 13-18)."""

    def step(walk: Lockstep, unit: Unit, width: int) -> Reconstruction:
        seen, order = findings.surveys[unit.name], findings.removals.get(unit.name)
        kept = select(config.selection, unit, width, findings.network.dense, seen, order, config.seed)
        return reconstruct(walk, unit, kept, findings.metrics, config)

    return step


LDRF = Method("ldrf", _begin, allocation="error", picks_by_curves=True, repairs_all=True)


def take_labels(method: Method, model: nn.Module, batches: Iterable[Any]) -> tuple[Iterable[Any], Tensor | None]:
    """The batches, and for a method that needs them all their labels in order [images]."""
    if not method.labelled or not isinstance(batches, Iterable):
        return batches, None
    batches = [batches] if isinstance(batches, Tensor) else list(batches)
    found = [labels_of(model, batch) for batch in batches]
    labels = [part for part in found if part is not None]
    if len(labels) < len(found):
        raise LdrfError(
            f"Method '{method.name}' needs batches with labels, whole numbers [batch]: "
            "tuples (inputs, labels) or dicts with 'labels'."
        )
    return batches, torch.cat(labels) if labels else None
