"""Arguments of ``ldrf evaluate``."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from tyro.conf import Positional, arg

from ldrf.cli.arguments.base import Arguments

HELP = """Measure top-1 and top-5 accuracy, MACs and parameters of a model.

For example: ldrf evaluate runs/demo --data sample"""


@dataclass(frozen=True)
class Evaluate(Arguments):
    """Arguments of ``ldrf evaluate``."""

    command: ClassVar[str] = "evaluate"
    help: ClassVar[str] = HELP

    model: Annotated[Positional[str], arg(metavar="MODEL")]
    """vgg9, resnet20, resnet56, torchvision:NAME, timm:NAME, file.py:factory, or a result folder."""
    data: Annotated[str, arg(metavar="DATA")]
    """Labelled images: sample, cifar10:folder, imagefolder:folder, or file.py:factory."""
    weights: Annotated[str | None, arg(metavar="FILE")] = None
    """Weights of the model, .safetensors or .pth; random for untrained ones, as a trial."""
    architecture: Annotated[str | None, arg(metavar="MODEL")] = None
    """The dense model of a result folder that does not name it."""
    images: Annotated[int | None, arg(metavar="INT")] = None
    """Number of test images to evaluate on; all by default."""
    device: Annotated[str, arg(metavar="DEVICE")] = "auto"
    """Where to compute: auto (an accelerator if there is one), cpu, cuda:0, ..."""
    json: bool = False
    """Print one JSON object instead of the table."""
