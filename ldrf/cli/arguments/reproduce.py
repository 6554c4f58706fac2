"""Arguments of ``ldrf reproduce``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from tyro.conf import Positional, arg

from ldrf.cli.arguments.base import Arguments, UsageError

RecipeName = Literal["vgg9-cifar10", "resnet20-cifar10", "resnet50-imagenet", "vgg16-imagenet"]
SCALES = ("images", "test_images", "steps", "iterations")  # fields that change the scale of a recipe

HELP = """Make the paper's tables and figures again, next to its own numbers and to other methods.

A run that was stopped continues where it stopped. For example: ldrf reproduce vgg9-cifar10 --quick"""


@dataclass(frozen=True)
class Reproduce(Arguments):
    """Arguments of ``ldrf reproduce``."""

    command: ClassVar[str] = "reproduce"
    help: ClassVar[str] = HELP

    recipe: Annotated[Positional[RecipeName], arg(metavar="RECIPE")]
    """vgg9-cifar10, resnet20-cifar10, resnet50-imagenet or vgg16-imagenet."""
    data: Annotated[str | None, arg(metavar="DATA")] = None
    """Images: cifar10:folder or imagefolder:folder, as the recipe needs; the bundled sample with --quick."""
    model: Annotated[str | None, arg(metavar="MODEL")] = None
    """The network, the recipe's own by default; the bundled VGG-9 with --quick."""
    weights: Annotated[str | None, arg(metavar="FILE")] = None
    """Weights of the network, .safetensors or .pth."""
    quick: bool = False
    """All tables and figures at a small scale on bundled images, in minutes, to see that everything works."""
    out: Annotated[Path | None, arg(metavar="FOLDER")] = None
    """Where results/, docs/results.md and docs/figures/ go: the working folder, or runs/quick with --quick."""
    work: Annotated[Path, arg(metavar="FOLDER")] = Path("runs/reproduce")
    """Folder of finished cells."""
    cells: Annotated[str, arg(metavar="GLOB")] = "*"
    """Run only cells whose names match, such as 'ldrf-*'."""
    again: bool = False
    """Measure these cells again even if they are finished, and everything that starts from them."""
    minutes: Annotated[float | None, arg(metavar="FLOAT")] = None
    """Start no cell after this many minutes; 0 only writes the page."""
    images: Annotated[int | None, arg(metavar="INT")] = None
    """Number of images to calibrate on."""
    test_images: Annotated[int | None, arg(metavar="INT")] = None
    """Number of images to evaluate on."""
    steps: Annotated[int | None, arg(metavar="INT")] = None
    """Descent steps per unit for LDRF."""
    iterations: Annotated[int | None, arg(metavar="INT")] = None
    """Iterations of fine-tuning where the recipe has it, of 100 images each; the paper has 10,000."""
    device: Annotated[str, arg(metavar="DEVICE")] = "auto"
    """Where to compute: auto (an accelerator if there is one), cpu, cuda:0, ..."""
    json: bool = False
    """Print one JSON object instead of the summary."""

    def check(self) -> None:
        for name, value in self.scale().items():
            if value < (name != "steps"):
                raise UsageError(f"--{name.replace('_', '-')} must be positive. Got {value} instead.")
        if self.data is None and not self.quick:
            form = "cifar10:folder" if self.recipe.endswith("cifar10") else "imagefolder:folder"
            raise UsageError(f"{self.recipe} needs images: add --data {form}, or --quick for the bundled sample.")

    def scale(self) -> dict[str, int]:
        """What was asked for instead of the recipe's own scale."""
        return {name: value for name in SCALES if (value := getattr(self, name)) is not None}
