"""What a pruning method is: how a unit's neurons are chosen and its weights found, with all else shared."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ldrf.calibration import Lockstep, Survey
from ldrf.config import Allocation, PruneConfig
from ldrf.cutting import Kept, narrowed
from ldrf.energy import labels_of
from ldrf.errors import LdrfError
from ldrf.network import Network
from ldrf.reconstruction import Reconstruction, reconstruct
from ldrf.removal import Removal
from ldrf.selection import select
from ldrf.units import Unit


@dataclass(frozen=True)
class Turn:
    """One unit's turn in stage 2: dense and slim network stand at its producer, and ``width`` neurons are to stay."""

    walk: Lockstep
    unit: Unit  # as in the dense network
    width: int
    units: tuple[Unit, ...]
    before: Kept  # what is left of the units that had their turn

    def standing(self, kept: Tensor) -> Unit:
        """The unit as it stands among those cut before it, if the ``kept`` neurons are to stay."""
        return narrowed(self.unit, self.units, {**self.before, self.unit.name: kept})


# The neurons of a unit that stay, and their weights.
Step = Callable[[Turn], Reconstruction]


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

    def step(turn: Turn) -> Reconstruction:
        unit, dense = turn.unit, findings.network.dense
        seen, order = findings.surveys[unit.name], findings.removals.get(unit.name)
        kept = select(config.selection, unit, turn.width, dense, seen, order, config.seed)
        return reconstruct(turn.walk, turn.standing(kept), kept, findings.metrics, config)

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
