"""Arguments of ``ldrf analyze``."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from tyro.conf import Positional, arg

from ldrf.cli.arguments.base import Arguments

HELP = """Show the rank of every layer (Tab. 1 of the paper): how few neurons could carry it.

For example: ldrf analyze vgg9 --data sample --energy 0.65"""


@dataclass(frozen=True)
class Analyze(Arguments):
    """Arguments of ``ldrf analyze``."""

    command: ClassVar[str] = "analyze"
    help: ClassVar[str] = HELP

    model: Annotated[Positional[str], arg(metavar="MODEL")]
    """vgg9, resnet20, resnet56, torchvision:NAME, timm:NAME, file.py:factory, or a result folder."""
    data: Annotated[str, arg(metavar="DATA")]
    """Images to measure the ranks on: sample, cifar10:folder, imagefolder:folder, or file.py:factory."""
    energy: float = 0.65
    """Share of the sum of singular values that the rank keeps (Eqn. 5)."""
    search: bool = False
    """Search for the energy: raise it until the split network, after a short tuning, is as good as the dense one
    (Algorithm 1, stage 1)."""
    weights: Annotated[str | None, arg(metavar="FILE")] = None
    """Weights of the model, .safetensors or .pth; random for untrained ones, as a trial."""
    architecture: Annotated[str | None, arg(metavar="MODEL")] = None
    """The dense model of a result folder that does not name it."""
    images: int = 512
    """Number of images to use; a search reads their labels where there are any."""
    device: Annotated[str, arg(metavar="DEVICE")] = "auto"
    """Where to compute: auto (an accelerator if there is one), cpu, cuda:0, ..."""
    json: bool = False
    """Print one JSON object instead of the table."""
