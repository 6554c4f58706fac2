"""What stage 1 found: the plan, and what stage 2 needs to know of every unit."""

from dataclasses import dataclass

from torch import Tensor

from ldrf.algebra.neuron_removal import Removal
from ldrf.calibration.survey import Survey
from ldrf.planning.plan import Plan


@dataclass(frozen=True)
class Findings:
    """The width plan, and by unit: what its readers see, the order in which its neurons go, and its metric.

    The surveys come without their Gram matrices. Labels [images] are there only where the method asks for them.
    """

    plan: Plan
    surveys: dict[str, Survey]
    removals: dict[str, Removal]
    metrics: dict[str, Tensor]
    labels: Tensor | None = None
