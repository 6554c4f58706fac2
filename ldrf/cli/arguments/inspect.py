"""Arguments of ``ldrf inspect``."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from tyro.conf import Positional, arg

from ldrf.cli.arguments.base import Arguments, UsageError
from ldrf.config import Deployment

HELP = """Show which units of a model can be pruned, what is cut with them, and why every other layer keeps its width.

For example: ldrf inspect torchvision:mobilenet_v2"""


@dataclass(frozen=True)
class Inspect(Arguments):
    """Arguments of ``ldrf inspect``."""

    command: ClassVar[str] = "inspect"
    help: ClassVar[str] = HELP

    model: Annotated[Positional[str], arg(metavar="MODEL")]
    """vgg9, resnet20, resnet56, torchvision:NAME, timm:NAME, file.py:factory, or a result folder."""
    data: Annotated[str | None, arg(metavar="DATA")] = None
    """Images to trace with: sample, cifar10:folder, imagefolder:folder, or file.py:factory; random by default."""
    shape: Annotated[str | None, arg(metavar="C,H,W")] = None
    """Shape of one random image, such as 3,224,224."""
    coupled: bool = False
    """Also count widths that residual sums tie together as prunable."""
    parts: Annotated[str | None, arg(metavar="NAME,NAME")] = None
    """Submodules to look at, such as backbone,rpn.head, where the model cannot be traced whole."""
    weights: Annotated[str | None, arg(metavar="FILE")] = None
    """Trained weights, .safetensors or .pth: they decide how far each unit can be cut."""
    architecture: Annotated[str | None, arg(metavar="MODEL")] = None
    """The dense model of a result folder that does not name it."""
    device: Annotated[str, arg(metavar="DEVICE")] = "auto"
    """Where to compute: auto (an accelerator if there is one), cpu, cuda:0, ..."""
    time: bool = False
    """Also time its layers where it will run, as --runtime, --batch and --threads say."""
    json: bool = False
    """Print one JSON object instead of the table."""
    deployment: Deployment = field(default_factory=Deployment)

    def check(self) -> None:
        if self.data and self.shape:
            raise UsageError("--shape is for random images: give --shape or --data, not both.")
        if self.deployment != Deployment() and not self.time:
            raise UsageError("--runtime, --batch and --threads go with --time.")
        self.sizes()

    def sizes(self) -> tuple[int, ...] | None:
        """The numbers of --shape, or None where there is none."""
        if self.shape is None:
            return None
        parts = self.shape.split(",")
        if not all(part.strip().isdigit() and int(part) > 0 for part in parts):
            raise UsageError(f"--shape must be whole numbers such as 3,224,224. Got '{self.shape}' instead.")
        return tuple(map(int, parts))
