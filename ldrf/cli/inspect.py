"""``ldrf inspect``: what of a model can be pruned, what hangs together, and why the rest cannot."""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn
from tyro.conf import Positional, arg

import ldrf
from ldrf.cli.models import ZOO, build, open_model
from ldrf.cli.output import Report, UsageError
from ldrf.data.sources import open_data

UNTRAINED = "Weights are random here: how far units can be cut, and the largest speedup, depend on --weights."
HELP = """Look before cutting: prunable units, what is cut with them, and why each other layer keeps its width.

For example: ldrf inspect torchvision:mobilenet_v2"""


@dataclass(frozen=True)
class Inspect:
    """Arguments of ``ldrf inspect``."""

    model: Annotated[Positional[str], arg(metavar="MODEL")]
    """vgg9, resnet20, resnet56, torchvision:NAME, timm:NAME, file.py:factory, or a result folder."""
    data: Annotated[str | None, arg(metavar="DATA")] = None
    """Images to trace with: sample, cifar10:folder, imagefolder:folder, or file.py:factory; random ones if left out."""
    shape: Annotated[str | None, arg(metavar="C,H,W")] = None
    """Shape of one random image, such as 3,224,224."""
    coupled: bool = False
    """Count widths that residual sums tie together as prunable too."""
    weights: Annotated[str | None, arg(metavar="FILE")] = None
    """Trained weights, .safetensors or .pth: they decide how far each unit can be cut."""
    architecture: Annotated[str | None, arg(metavar="MODEL")] = None
    """The dense model of a result folder that does not name it."""
    json: bool = False
    """Print one JSON object instead of the table."""

    def run(self) -> Report:
        """Inspect the model and show the table."""
        if self.data and self.shape:
            raise UsageError("--shape is for random images: give it or --data, not both.")
        model = self._model()
        batch = next(iter(open_data(self.data, "train").take(4))) if self.data else self._random(model)
        config = ldrf.PruneConfig(coupled=True) if self.coupled else ldrf.PruneConfig()
        found = ldrf.inspect(model, [batch], config=config)
        return Report(found.as_dict(), [str(found), *([UNTRAINED] if self._is_untrained() else [])])

    def _model(self) -> nn.Module:
        """The model with the weights given or bundled; those of libraries are not loaded just to look."""
        if self._is_untrained():
            return build(self.model).eval()
        return open_model(self.model, self.weights, self.architecture).model

    def _is_untrained(self) -> bool:
        by_name = self.model in set(ZOO) - {"vgg9"} or self.model.startswith(("torchvision:", "timm:"))
        return by_name and self.weights is None and self.architecture is None

    def _random(self, model: nn.Module) -> Tensor:
        if self.shape is not None:
            parts = self.shape.split(",")
            if not all(p.strip().isdigit() and int(p) > 0 for p in parts):
                raise UsageError(f"--shape must be whole numbers such as 3,224,224. Got '{self.shape}' instead.")
            return torch.randn(2, *map(int, parts))
        small = self.model in ZOO or not self.model.startswith(("torchvision:", "timm:"))
        stated = getattr(model, "default_cfg", None) or {}
        size = stated.get("input_size", (3, 32, 32) if small else (3, 224, 224))
        return torch.randn(2, *size)
