"""Arguments of ``ldrf finetune``."""

from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from tyro.conf import Positional, arg

from ldrf.cli.arguments.base import Arguments
from ldrf.config import FinetuneConfig

HELP = """Train a slim model to answer as its dense one does, on unlabelled images; the same command resumes it.

For example: ldrf finetune runs/demo --data sample --out runs/tuned --epochs 10"""


@dataclass(frozen=True)
class Finetune(Arguments):
    """Arguments of ``ldrf finetune``."""

    command: ClassVar[str] = "finetune"
    help: ClassVar[str] = HELP

    model: Annotated[Positional[str], arg(metavar="FOLDER")]
    """Result folder with the slim model."""
    data: Annotated[str, arg(metavar="DATA")]
    """Images: sample, cifar10:folder, imagefolder:folder, or file.py:factory."""
    out: Annotated[Path, arg(metavar="FOLDER")]
    """Result folder for the tuned model; FOLDER.resume.pt beside it keeps the state until the run is done."""
    weights: Annotated[str | None, arg(metavar="FILE")] = None
    """Weights of the dense model, if they are not where they were."""
    architecture: Annotated[str | None, arg(metavar="MODEL")] = None
    """The dense model, if the folder does not name it."""
    images: Annotated[int | None, arg(metavar="INT")] = None
    """Number of training images to use; all by default."""
    test_images: Annotated[int | None, arg(metavar="INT")] = None
    """Number of labelled test images to compare the three models on; all by default, 0 for none."""
    preset: Annotated[Literal["paper"] | None, arg(metavar="paper")] = None
    """The paper's own fine-tuning, by labels alone: 10,000 steps of 100 images, plainly down the gradient from a rate
    of 0.01. Settings that are given otherwise than by default count more."""
    tensorboard: Annotated[Path | None, arg(metavar="FOLDER")] = None
    """Also write the curve for TensorBoard."""
    force_teacher: bool = False
    """Learn from the dense model even if it has other weights than the one that was pruned."""
    force: bool = False
    """Replace an earlier result in the folder."""
    device: Annotated[str, arg(metavar="DEVICE")] = "auto"
    """Where to compute: auto (an accelerator if there is one), cpu, cuda:0, ..."""
    json: bool = False
    """Print one JSON object instead of the tables."""
    config: FinetuneConfig = field(default_factory=FinetuneConfig)

    def settings(self) -> FinetuneConfig:
        """The settings of the preset, if there is one, with those that were given."""
        if self.preset is None:
            return self.config
        usual = FinetuneConfig()
        given = {f.name: getattr(self.config, f.name) for f in fields(usual)}
        return replace(FinetuneConfig.paper(), **{n: v for n, v in given.items() if v != getattr(usual, n)})
