"""What a plan is priced in: MACs, parameters, or whatever else depends on widths."""

from collections.abc import Callable
from dataclasses import dataclass

from ldrf.calibration.network import Network
from ldrf.planning.cost_model import CostModel


@dataclass(frozen=True)
class Objective:
    """A cost that is to shrink by a ratio; ``label`` is what errors call that ratio.

    To add one, put a file with an ``ENTRY`` into ``planning/objectives``, or call
    ``ldrf.registry.OBJECTIVES.register`` from outside. ``prune(..., objective=(name, ratio))`` then plans by it.
    """

    label: str
    cost: Callable[[Network], CostModel]
