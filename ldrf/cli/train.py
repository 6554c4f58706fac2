"""``ldrf train``: train a network of the zoo on CIFAR-10."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import torch
from tyro.conf import Positional, arg

from ldrf.cli.models import ZOO, load_weights
from ldrf.cli.output import Report, facts
from ldrf.data.sources import open_cifar10
from ldrf.zoo.training import TrainingSettings, evaluate, save_weights, train

HELP = """Train a network on CIFAR-10 by the paper's recipe; the same command resumes after a kill.

For example: ldrf train vgg9 --data cifar10:data/cifar10 --out runs/vgg9 --epochs 15"""


@dataclass(frozen=True)
class Train:
    """Arguments of ``ldrf train``."""

    model: Annotated[Positional[Literal["vgg9", "resnet20", "resnet56"]], arg(metavar="MODEL")]
    """vgg9, resnet20 or resnet56."""
    data: Annotated[str, arg(metavar="DATA")]
    """CIFAR-10 as cifar10:folder (official binary or Python form, or PNG strips)."""
    out: Annotated[Path, arg(metavar="FOLDER")]
    """Folder for last.pt after every epoch, log.txt, and at the end model.safetensors in half precision."""
    weights: Annotated[str | None, arg(metavar="FILE")] = None
    """Trained weights to go on from (safetensors or .pth), instead of random ones."""
    json: bool = False
    """Print one JSON object instead of the table."""
    recipe: TrainingSettings = field(default_factory=TrainingSettings)

    def run(self) -> Report:
        """Train to the last epoch, resuming what is in the folder, and keep the weights."""
        images, test = (open_cifar10(self.data, split) for split in ("train", "test"))
        torch.manual_seed(self.recipe.seed)
        model = ZOO[self.model]()
        if self.weights is not None:
            load_weights(model, self.weights)
        model = train(model, images, test, self.out, self.recipe)
        save_weights(model.state_dict(), self.out / "model.safetensors")
        top1 = evaluate(model, test)
        data = {"model": self.model, "top1": top1, "weights": str(self.out / "model.safetensors")}
        rows = {"top-1": f"{top1:.2f} %", "test images": f"{len(test):,}", "weights": data["weights"]}
        return Report({**data, "recipe": asdict(self.recipe)}, [facts(rows)])
