"""Every setting of a run, with the default that measured best."""

from dataclasses import dataclass
from typing import Literal, get_args

from ldrf.errors import LdrfError

Selection = Literal["second-order", "top-k", "random", "apoz", "activation", "weight"]
Allocation = Literal["error", "paper", "uniform"]
Solver = Literal["joint", "closed-form", "none", "l1-mask"]
Metric = Literal["gradient", "output", "embedding", "embedding-data"]

# Read by method "ldrf" alone; the rival methods say themselves which neurons stay and how weights are found.
OWN_SETTINGS = ("selection", "solver", "steps", "rate", "lambda_1", "lambda_2")

BOUNDS = (
    ("steps", 0, 1e9),
    ("rate", 1e-9, 10.0),
    ("damping", 0.0, 1e6),
    ("energy", 1e-9, 1.0),
    ("held_out", 0.01, 0.5),
    ("chunk", 1, 1e9),
    ("memory", 0, 2**62),
)


@dataclass(frozen=True)
class PruneConfig:
    """How to prune; what to reach is said in :func:`ldrf.prune` itself."""

    selection: Selection = "second-order"
    """Which neurons stay (Tab. 2)."""
    allocation: Allocation | None = None
    """How widths are chosen: by error curves (ldrf's default), by the paper's ranks, or the same share everywhere (the
    default of the other methods)."""
    solver: Solver = "joint"
    """How R' and Q' are found (Eqn. 6): closed form and descent, closed form alone, plain cutting, or Eqn. 4's mask."""
    metric: Metric = "gradient"
    """How outputs are compared (Eqn. 6): weighed by their gradients, all alike, or in the normalised embedding."""
    steps: int = 250
    """Descent steps per unit."""
    rate: float = 0.02
    """Top learning rate of the descent, relative to each tensor's own size."""
    damping: float = 1e-4
    """Pull towards the dense weights in least squares, relative to the mean diagonal of the Gram matrix."""
    lambda_1: float = 1.0
    """Weight of the reconstruction error in Eqn. 4, with the l1-mask solver."""
    lambda_2: float | None = None
    """Weight of the mask's l1 norm in Eqn. 4; by default it follows the width wanted."""
    coupled: bool | None = None
    """Cut widths that residual sums tie together: always, never, or (None) where the target needs it."""
    energy: float = 0.25
    """Share of the sum of singular values that sets each unit's smallest width (Eqn. 5, Tab. 1)."""
    held_out: float = 0.125
    """Share of the calibration images that only judge."""
    chunk: int = 64
    """Images run at a time."""
    memory: int = 2 * 2**30
    """Bytes of activations kept in memory; the rest goes to a temporary folder."""
    seed: int = 0
    """Makes a run repeatable bit for bit on one machine."""

    def __post_init__(self) -> None:
        for name, kind in (
            ("selection", Selection),
            ("allocation", Allocation),
            ("solver", Solver),
            ("metric", Metric),
        ):
            value = getattr(self, name)
            if value not in get_args(kind) and not (name == "allocation" and value is None):
                raise LdrfError(f"The '{name}' must be one of {', '.join(get_args(kind))}. Got {value!r} instead.")
        for name, low, high in BOUNDS:
            value = getattr(self, name)
            if not low <= value <= high:
                raise LdrfError(f"The '{name}' must lie from {low:g} to {high:g}. Got {value!r} instead.")
