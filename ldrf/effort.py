"""How much work a prune may be: one word for images, steps and rates; ``docs/cost.md`` says what each gives."""

from dataclasses import dataclass
from typing import Literal

EffortName = Literal["quick", "default", "thorough"]


@dataclass(frozen=True)
class Effort:
    """What the settings are that are not set by hand."""

    steps: int  # descent steps per unit
    joint_steps: int  # descent steps of all units together
    share: int  # of these for each step per unit, where the latter are set by hand
    joint_rate: float  # largest share of its size by which a tensor moves in such a step
    augment: bool | None  # whether images are changed on the fly; None decides by how often they are seen
    unit_images: int | None  # images that widths and single units are found on; None takes all


EFFORTS: dict[EffortName, Effort] = {
    # The closed form needs few images, and steps of all units together gain more than those of one.
    "quick": Effort(steps=0, joint_steps=80, share=10, joint_rate=0.02, augment=None, unit_images=256),
    "default": Effort(steps=30, joint_steps=300, share=10, joint_rate=0.015, augment=None, unit_images=512),
    "thorough": Effort(steps=50, joint_steps=1600, share=32, joint_rate=0.015, augment=True, unit_images=None),
}
