"""How CIFAR-10 networks are trained; no torch is needed to describe it."""

from dataclasses import dataclass

from ldrf.errors import LdrfError


@dataclass(frozen=True)
class TrainingSettings:
    """SGD with momentum, flips and padded crops, linearly falling rate (Sec. "VGG-9 on CIFAR-10").

    The paper trains 200 epochs from a rate of 0.1 with weight decay 1e-4. The short schedule here warms up first and
    needs the stronger decay to reach the same accuracy in a dozen epochs.
    """

    epochs: int = 12
    """Passes over the training images."""
    batch: int = 100
    """Images per step."""
    rate: float = 0.1
    """Top learning rate."""
    warmup: float = 1.0
    """Epochs of linear rise before the linear fall."""
    momentum: float = 0.9
    """Momentum (Nesterov)."""
    decay: float = 5e-4
    """Weight decay of conv and linear weights."""
    smoothing: float = 0.1
    """Label smoothing."""
    seed: int = 0
    """Seed of the order and the augmentation."""
    iterations: int | None = None
    """Total number of steps, instead of epochs."""

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "rate", "iterations"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise LdrfError(f"The '{name}' of a recipe must be positive. Got {value} instead.")
