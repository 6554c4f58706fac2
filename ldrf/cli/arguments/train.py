"""Arguments of ``ldrf train``."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

from tyro.conf import Positional, arg

from ldrf.cli.arguments.base import Arguments, ZooName
from ldrf.zoo.training_settings import TrainingSettings

HELP = """Train a network on CIFAR-10 by the paper's recipe; the same command resumes after a kill.

For example: ldrf train vgg9 --data cifar10:data/cifar10 --out runs/vgg9 --epochs 15"""


@dataclass(frozen=True)
class Train(Arguments):
    """Arguments of ``ldrf train``."""

    command: ClassVar[str] = "train"
    help: ClassVar[str] = HELP

    model: Annotated[Positional[ZooName], arg(metavar="MODEL")]
    """vgg9, resnet20 or resnet56."""
    data: Annotated[str, arg(metavar="DATA")]
    """CIFAR-10 as cifar10:folder (official binary or Python form, or PNG strips)."""
    out: Annotated[Path, arg(metavar="FOLDER")]
    """Folder for last.pt after every epoch, log.txt, and at the end model.safetensors in half precision."""
    weights: Annotated[str | None, arg(metavar="FILE")] = None
    """Trained weights to start from (.safetensors or .pth), instead of random ones."""
    json: bool = False
    """Print one JSON object instead of the table."""
    recipe: TrainingSettings = field(default_factory=TrainingSettings)
