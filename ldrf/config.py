"""Every setting of a run, with the default that measured best."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal, get_args

from ldrf.effort import EFFORTS, EffortName
from ldrf.errors import LdrfError
from ldrf.registry import RUNTIMES, SOLVERS

Selection = Literal["second-order", "top-k", "random", "apoz", "activation", "weight"]
Allocation = Literal["error", "paper", "uniform"]
Metric = Literal["gradient", "output", "embedding", "embedding-data"]
Schedule = Literal["cosine", "linear"]
Norms = Literal["batch", "frozen"]
Precision = Literal["auto", "float32", "bfloat16"]
Optimiser = Literal["muon", "sgd"]
if TYPE_CHECKING:
    Solver = str  # the name of a file of ldrf/reconstruction/solvers, or of a solver that was registered
    RuntimeName = str  # the same of ldrf/deployment/runtimes
else:
    Solver = Literal[SOLVERS.built_in]
    RuntimeName = Literal[RUNTIMES.built_in]

# Read by method "ldrf" alone; the rival methods say themselves which neurons stay and how weights are found.
OWN_SETTINGS = (
    "selection",
    "solver",
    "steps",
    "joint_steps",
    "augment",
    "rate",
    "joint_rate",
    "lambda_1",
    "lambda_2",
)

BOUNDS = (
    ("rate", 1e-9, 10.0),
    ("damping", 0.0, 1e6),
    ("energy", 1e-9, 1.0),
    ("held_out", 0.01, 0.5),
    ("multiple", 1, 1024),
    ("chunk", 1, 1e9),
    ("memory", 0, 2**62),
)
BY_EFFORT = (("steps", 0, 1e9), ("joint_steps", 0, 1e9), ("joint_rate", 1e-9, 10.0), ("unit_images", 1, 1e9))
FINETUNE_BOUNDS = (
    ("epochs", 1, 1e6),
    ("batch", 1, 1e6),
    ("rate", 1e-9, 10.0),
    ("labels", 0.0, 1e6),
    ("logits", 0.0, 1e6),
    ("embeddings", 0.0, 1e6),
    ("ema", 0.0, 0.99999),
    ("held_out", 0.01, 0.5),
)


@dataclass(frozen=True)
class PruneConfig:
    """How to prune. The target is an argument of its own."""

    effort: EffortName = "default"
    """How much work it may be: what steps, joint_steps, joint_rate, augment and unit_images are where they are not
    set."""
    selection: Selection = "second-order"
    """Which neurons stay (Tab. 2)."""
    allocation: Allocation | None = None
    """How widths are chosen: by error curves (ldrf's default), by the paper's ranks, or the same share everywhere (the
    default of the other methods)."""
    solver: Solver = "joint"
    """How R' and Q' are found (Eqn. 6): closed form and descent, closed form alone, plain cutting, or Eqn. 4's mask."""
    metric: Metric = "gradient"
    """How outputs are compared (Eqn. 6): weighed by their gradients, all alike, or in the normalised embedding."""
    steps: int | None = None
    """Descent steps per unit; 30 by default."""
    joint_steps: int | None = None
    """Descent steps of all units together, after the last: 0 is the paper's Algorithm 1, None is 10 times ``steps``,
    and 32 times in a thorough run."""
    augment: bool | None = None
    """Flip images, shift them by up to an eighth and blend half of them with others in the joint steps, so that they do
    not overfit: always, never, or (None) if these steps go through the images more than 16 times or the run is
    thorough."""
    rate: float = 0.04
    """Top learning rate of a unit's descent, relative to each tensor's own size."""
    joint_rate: float | None = None
    """The same of the joint steps; 0.015 by default."""
    unit_images: int | None = None
    """Images that widths and single units are found on; the joint steps take all. None takes 512, 256 in a quick run,
    and all in a thorough one or where no joint steps follow."""
    damping: float = 1e-4
    """Pull towards the dense weights in least squares, relative to the mean diagonal of the Gram matrix."""
    lambda_1: float = 1.0
    """Weight of the reconstruction error in Eqn. 4, with the l1-mask solver."""
    lambda_2: float | None = None
    """Weight of the mask's l1 norm in Eqn. 4; by default it is chosen by the width."""
    coupled: bool | None = None
    """Cut widths that residual sums tie together: always, never, or (None) if the target needs it."""
    depth: bool = False
    """Leave residual branches out altogether where that costs less than narrow ones: their mean is added instead."""
    uniform: bool = False
    """Give the same layer of every block the same width, so that one number in a config can say it."""
    multiple: int = 8
    """Widths come in multiples of this, as runtimes compute whole blocks of channels; 1 allows any width. Narrow
    layers move in smaller steps, so that there are at least four; the full width is always allowed."""
    energy: float = 0.25
    """Share of the sum of singular values that sets each unit's smallest width (Eqn. 5, Tab. 1)."""
    held_out: float = 0.125
    """Share of the calibration images that are not fitted, only used to judge."""
    chunk: int = 32
    """Images run at a time, and images per step."""
    memory: int | str = 2 * 2**30
    """Bytes of images and activations in memory, such as 2GiB; the rest goes to disk, into the run's folder if any."""
    device_memory: int | str | None = None
    """Bytes of activations on an accelerator, such as 8GiB; by default half of what is free there. The rest goes to
    the host's memory."""
    offload: bool = False
    """Keep the weights in the host's memory and bring each layer to the accelerator when it is run: slower, for models
    that it has no room for."""
    precision: Precision = "auto"
    """Of forward passes and descent steps; sums and solves are in float64 either way. "auto" is bfloat16 in the steps
    of all units, where the processor or card has products of it, and float32 in all else."""
    seed: int = 0
    """The same seed gives the same bits on one machine."""

    def __post_init__(self) -> None:
        _check_choices(self, ("effort", EffortName), ("selection", Selection), ("metric", Metric))
        _check_choices(self, ("precision", Precision))
        if self.solver not in SOLVERS.names:
            raise LdrfError(f"The 'solver' must be one of {', '.join(SOLVERS.names)}. Got {self.solver!r} instead.")
        if self.allocation is not None:  # None leaves it to the method
            _check_choices(self, ("allocation", Allocation))
        object.__setattr__(self, "memory", byte_count(self.memory))
        if self.device_memory is not None:
            object.__setattr__(self, "device_memory", byte_count(self.device_memory, "device_memory"))
            _check_bounds(self, (("device_memory", 0, 2**62),))
        _check_bounds(self, BOUNDS)
        if self.uniform and self.depth:
            raise LdrfError("uniform=True and depth=True exclude each other: blocks without a branch are not alike.")
        _check_bounds(self, tuple(bounds for bounds in BY_EFFORT if getattr(self, bounds[0]) is not None))

    @property
    def unit_steps(self) -> int:
        """Descent steps per unit, as they are set or by the effort."""
        return EFFORTS[self.effort].steps if self.steps is None else self.steps

    @property
    def steps_together(self) -> int:
        """Descent steps of all units together."""
        if self.joint_steps is not None:
            return self.joint_steps
        effort = EFFORTS[self.effort]
        return effort.joint_steps if self.steps is None else effort.share * self.steps

    @property
    def rate_together(self) -> float:
        """Top learning rate of these."""
        return EFFORTS[self.effort].joint_rate if self.joint_rate is None else self.joint_rate

    def filled(self) -> "PruneConfig":
        """The same with numbers in place of what is left to the effort."""
        effort = EFFORTS[self.effort]
        return replace(
            self,
            steps=self.unit_steps,
            joint_steps=self.steps_together,
            joint_rate=self.rate_together,
            augment=effort.augment if self.augment is None else self.augment,
            unit_images=effort.unit_images if self.unit_images is None else self.unit_images,
        )


@dataclass(frozen=True)
class Deployment:
    """Where and how the slim network will run; goes with a latency to reach."""

    runtime: RuntimeName | None = None
    """What runs it; by default the fastest that is installed, tried on the dense network."""
    batch: int = 1
    """Examples per call."""
    threads: int = 1
    """Threads of the processor."""

    def __post_init__(self) -> None:
        if self.runtime is not None and self.runtime not in RUNTIMES.names:
            raise LdrfError(f"The 'runtime' must be one of {', '.join(RUNTIMES.names)}. Got {self.runtime!r} instead.")
        for name in ("batch", "threads"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise LdrfError(f"The '{name}' must be a whole number from 1 up. Got {value!r} instead.")


@dataclass(frozen=True)
class FinetuneConfig:
    """How to fine-tune; the defaults need no labels."""

    epochs: int = 30
    """Passes over the images."""
    iterations: int | None = None
    """Steps in all, in place of ``epochs``; the last pass ends early."""
    batch: int = 32
    """Images per step."""
    optimiser: Optimiser = "muon"
    """How weights move: by Muon and Adam; or plainly down the gradient, with momentum 0.9 and a weight decay of
    1e-4."""
    rate: float = 0.01
    """Top learning rate; with Muon it is a share of each tensor's own size."""
    schedule: Schedule = "cosine"
    """How the rate falls to zero."""
    labels: float = 0.0
    """Weight of the cross-entropy with the labels; 0 leaves them unread."""
    logits: float = 1.0
    """Weight of the distance to the dense model's outputs."""
    embeddings: float = 1.0
    """Weight of the distance to the dense model's blocks, where they are as wide as before."""
    norms: Norms = "frozen"
    """Whether BatchNorms follow the batches or keep their statistics."""
    augment: bool = True
    """Flip images and shift them by up to an eighth, and where the dense model teaches blend half of them with others;
    --no-augment leaves them as they are."""
    ema: float = 0.99
    """Decay of the running mean of the weights, which is what is judged and kept; 0 for none."""
    minutes: float | None = None
    """Stop by then, the rate falling with the time that is used up; None takes as long as the epochs take."""
    patience: int | None = None
    """Stop after so many epochs without a gain on held-out images; most gains come late, when the rate is low."""
    held_out: float = 0.1
    """Share of the images that are not trained on, only used to judge."""
    precision: Precision = "auto"
    """Of the forward and backward passes: bfloat16 by itself where the processor or card has products of it. The
    weights, their steps and the judgement are in float32 either way."""
    seed: int = 0
    """Seed of the split, the order and the augmentation."""

    def __post_init__(self) -> None:
        _check_choices(self, ("schedule", Schedule), ("norms", Norms), ("precision", Precision))
        _check_choices(self, ("optimiser", Optimiser))
        _check_bounds(self, FINETUNE_BOUNDS)
        if self.iterations is not None:
            _check_bounds(self, (("iterations", 1, 1e9),))
        if self.minutes is not None:
            _check_bounds(self, (("minutes", 0, 1e6),))
        if self.patience is not None:
            _check_bounds(self, (("patience", 1, 1e6),))
        if not self.labels + self.logits + self.embeddings > 0:
            raise LdrfError("At least one of 'labels', 'logits' and 'embeddings' must be above 0. Got 0 for all.")

    @classmethod
    def paper(cls) -> "FinetuneConfig":
        """The paper's own fine-tuning: labels alone, 10,000 steps of 100 images, from a rate of 0.01 down a line."""
        own: dict[str, Any] = {"labels": 1.0, "logits": 0.0, "embeddings": 0.0, "norms": "batch", "ema": 0.0}
        return cls(iterations=10_000, batch=100, optimiser="sgd", rate=0.01, schedule="linear", **own)


def byte_count(size: int | str, name: str = "memory") -> int:
    """A number of bytes, also written with a unit: ``"2GiB"``, ``"500 MB"``."""
    if isinstance(size, int):
        return size
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(?:([kmgt]?)(i?)b?)\s*", str(size), re.IGNORECASE)
    if match is None:
        raise LdrfError(f"The '{name}' must be a number of bytes such as 2GiB or 500MB. Got {size!r} instead.")
    number, prefix, binary = match.groups()
    return int(float(number) * (1024 if binary else 1000) ** " kmgt".index(prefix.lower() or " "))


def milliseconds(text: str) -> float:
    """A time with its unit, ``"4 ms"`` or ``"0.5 s"``, as milliseconds."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(us|ms|s)\s*", text)
    if match is None or not float(match[1]):
        raise LdrfError(f"The 'latency' must be a ratio above 1 or a time such as '4 ms'. Got {text!r} instead.")
    return float(match[1]) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[match[2]]


def _check_choices(config: object, *choices: tuple[str, Any]) -> None:
    for name, kind in choices:
        value = getattr(config, name)
        if value not in get_args(kind):
            raise LdrfError(f"The '{name}' must be one of {', '.join(get_args(kind))}. Got {value!r} instead.")


def _check_bounds(config: object, bounds: tuple[tuple[str, float, float], ...]) -> None:
    for name, low, high in bounds:
        value = getattr(config, name)
        if not low <= value <= high:
            raise LdrfError(f"The '{name}' must lie from {low:g} to {high:g}. Got {value!r} instead.")


def check_known(unknown: Mapping[str, object]) -> None:
    """Raise for arguments that :func:`ldrf.prune` does not have; a setting is pointed to its place."""
    settings = [f.name for f in fields(PruneConfig)]
    for name, value in unknown.items():
        near = get_close_matches(name, settings, 1)
        hint = f": a setting goes into config=ldrf.PruneConfig({near[0]}={value!r})" if near else ""
        raise LdrfError(f"ldrf.prune has no argument '{name}'{hint}.")
