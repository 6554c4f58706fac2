"""Arguments of ``ldrf export``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from tyro.conf import Positional, arg

from ldrf.cli.arguments.base import Arguments, UsageError, is_result

HELP = """Write a model to one file: ONNX, PyTorch's .pt2 (loads without ldrf), or its state dict; any batch size.

For example: ldrf export runs/demo --format onnx"""


@dataclass(frozen=True)
class Export(Arguments):
    """Arguments of ``ldrf export``."""

    command: ClassVar[str] = "export"
    help: ClassVar[str] = HELP

    model: Annotated[Positional[str], arg(metavar="MODEL")]
    """A result folder, or vgg9, resnet20, resnet56, torchvision:NAME, timm:NAME, file.py:factory."""
    format: Annotated[Literal["onnx", "pt2", "state-dict"] | None, arg(metavar="{onnx,pt2,state-dict}")] = None
    """What to write; by default what the suffix of --out says, else onnx."""
    out: Annotated[Path | None, arg(metavar="FILE")] = None
    """File to write; by default slim.onnx, slim.pt2 or slim.pt in the result folder."""
    data: Annotated[str | None, arg(metavar="DATA")] = None
    """Images on which the file is compared with the model: sample, cifar10:folder, ...; random inputs by default."""
    weights: Annotated[str | None, arg(metavar="FILE")] = None
    """Weights of a model that is not a result folder, .safetensors or .pth."""
    architecture: Annotated[str | None, arg(metavar="MODEL")] = None
    """The dense model of a result folder that does not name it."""
    force: bool = False
    """Replace an earlier file."""
    json: bool = False
    """Print one JSON object instead of the table."""

    def check(self) -> None:
        if self.out is None and not is_result(self.model):
            raise UsageError(f"'{self.model}' is not a result folder: say where to write with --out FILE.")
