"""``ldrf export``: a slim model as one file for deployment."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from ldrf.cli.examples import open_example
from ldrf.cli.models import is_result, open_model
from ldrf.cli.output import Report, UsageError, facts
from ldrf.errors import LdrfError
from ldrf.saving.export import Format, export, format_of

HELP = """Write a model to one file: ONNX, PyTorch's .pt2 (loads without ldrf), or its state dict; any batch size.

For example: ldrf export runs/demo --format onnx"""

FILES: dict[Format, str] = {"onnx": "slim.onnx", "pt2": "slim.pt2", "state-dict": "slim.pt"}


@dataclass(frozen=True)
class Export:
    """Arguments of ``ldrf export``."""

    model: Annotated[Positional[str], arg(metavar="MODEL")]
    """A result folder, or vgg9, resnet20, resnet56, torchvision:NAME, timm:NAME, file.py:factory."""
    format: Annotated[Format | None, arg(metavar="{onnx,pt2,state-dict}")] = None
    """What to write; by default what the suffix of --out says, else onnx."""
    out: Annotated[Path | None, arg(metavar="FILE")] = None
    """File to write; by default slim.onnx, slim.pt2 or slim.pt in the result folder."""
    data: Annotated[str | None, arg(metavar="DATA")] = None
    """Images to compare file and model on: sample, cifar10:folder, ...; random inputs by default."""
    weights: Annotated[str | None, arg(metavar="FILE")] = None
    """Weights of a model that is no result folder, .safetensors or .pth."""
    architecture: Annotated[str | None, arg(metavar="MODEL")] = None
    """The dense model of a result folder that does not name it."""
    force: bool = False
    """Replace an earlier file."""
    json: bool = False
    """Print one JSON object instead of the table."""

    def run(self) -> Report:
        """Export, compare, write."""
        out, format = self._place()
        if out.exists() and not self.force:
            raise LdrfError(f"'{out}' is there already: choose another --out, or add --force to replace it.")
        model = open_model(self.model, self.weights, self.architecture).model
        example = open_example(self.model, model, self.data, 3)
        done = export(model, out, example=example, format=format)
        data = {"file": str(done.path), "format": done.format, "max_error": done.error, "bytes": done.bytes}
        rows = {
            "file": str(done.path),
            "format": done.format,
            "bytes": f"{done.bytes:,}",
            "largest difference from the model": f"{done.error:.2g}",
        }
        return Report(data, [facts(rows)])

    def _place(self) -> tuple[Path, Format]:
        """Where to write and what, each from the other where only one is given."""
        if self.out is not None:
            return self.out, self.format or format_of(self.out)
        if not is_result(self.model):
            raise UsageError(f"'{self.model}' is no result folder: say where to write with --out FILE.")
        format: Format = self.format or "onnx"
        return Path(self.model) / FILES[format], format
