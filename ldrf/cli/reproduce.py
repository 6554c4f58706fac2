"""``ldrf reproduce``: the paper's tables and figures, and rival methods beside them."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from ldrf.cli.models import open_model
from ldrf.cli.output import Report, UsageError
from ldrf.data.sources import open_cifar10, open_data
from ldrf.reproduce.cells import Shelf, run_cells
from ldrf.reproduce.measure import measure
from ldrf.reproduce.page import write_page
from ldrf.reproduce.recipe import Recipe, Scale
from ldrf.reproduce.recipes import RECIPES
from ldrf.reproduce.results import Results, earlier_records, write
from ldrf.reproduce.subject import Subject

HELP = """Make the paper's tables and figures again, next to its own numbers and to other methods.

A run that was stopped goes on where it stopped. For example: ldrf reproduce vgg9-cifar10 --quick"""

QUICK_MODEL, QUICK_DATA = "vgg9", "sample"


@dataclass(frozen=True)
class Reproduce:
    """Arguments of ``ldrf reproduce``."""

    recipe: Annotated[
        Positional[Literal["vgg9-cifar10", "resnet20-cifar10", "resnet50-imagenet", "vgg16-imagenet"]],
        arg(metavar="RECIPE"),
    ]
    """vgg9-cifar10, resnet20-cifar10, resnet50-imagenet or vgg16-imagenet."""
    data: Annotated[str | None, arg(metavar="DATA")] = None
    """Images: cifar10:folder or imagefolder:folder, as the recipe wants; the bundled sample with --quick."""
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
    """Run only cells with such names, such as 'ldrf-*'."""
    again: bool = False
    """Measure these cells anew, also where they are finished, and all that starts from them."""
    minutes: Annotated[float | None, arg(metavar="FLOAT")] = None
    """Start no cell after so many minutes; 0 only writes the page."""
    images: Annotated[int | None, arg(metavar="INT")] = None
    """Images to calibrate on."""
    test_images: Annotated[int | None, arg(metavar="INT")] = None
    """Images to evaluate on."""
    steps: Annotated[int | None, arg(metavar="INT")] = None
    """Descent steps a unit for LDRF."""
    iterations: Annotated[int | None, arg(metavar="INT")] = None
    """Iterations of fine-tuning where the recipe has it, of 100 images; the paper has 10,000."""
    json: bool = False
    """Print one JSON object instead of the summary."""

    def run(self) -> Report:
        """Run what is missing, then write the results and the page."""
        recipe, scale = RECIPES[self.recipe], self._scale()
        model, data = self._names(recipe)
        subject = _open(recipe, model, self.weights, data)
        out = self.out or Path("runs/quick" if self.quick else ".")
        cells, digest = recipe.cells(scale), subject.digest()
        keys = {cell.key(digest) for cell in cells}
        earlier = {} if self.quick else earlier_records(out / "results" / f"{recipe.name}.json", keys)
        shelf = Shelf(self.work, digest, earlier)
        measured = partial(measure, subject=subject, shelf=shelf)
        found = run_cells(cells, shelf, measured, self.cells, self.minutes, self.again)
        named = self._command(), _public(model), _public(data), self.quick, scale
        results = Results(recipe.name, *named, found.done, found.left, found.refused)
        written = [write(results, out / "results"), *write_page(out / "results", out / "docs")]
        told = [f"{len(found.done)} of {len(cells)} cells done."]
        told += [f"Left: {', '.join(found.left)}."] if found.left else []
        told += [f"{name} {reason}" for name, reason in found.refused.items()]
        told += [f"Wrote {', '.join(map(str, written))}"]
        record = {"recipe": recipe.name, "done": list(found.done), "left": list(found.left), "refused": found.refused}
        return Report({**record, "written": [str(path) for path in written]}, list(told))

    def _scale(self) -> Scale:
        recipe = RECIPES[self.recipe]
        asked = {name: getattr(self, name) for name in ("images", "test_images", "steps", "iterations")}
        wrong = [name for name, value in asked.items() if value is not None and value < (name != "steps")]
        if wrong:
            raise UsageError(f"--{wrong[0].replace('_', '-')} must be positive. Got {asked[wrong[0]]} instead.")
        scale = recipe.quick if self.quick else recipe.full
        return replace(scale, **{name: value for name, value in asked.items() if value is not None})

    def _names(self, recipe: Recipe) -> tuple[str, str]:
        """Model and data, as asked for or by default."""
        if self.data is None and not self.quick:
            raise UsageError(
                f"{recipe.name} needs images: add --data {recipe.data}, or --quick for the bundled sample."
            )
        own = self.weights is not None or self.data is not None or not self.quick
        return self.model or (recipe.model if own else QUICK_MODEL), self.data or QUICK_DATA

    def _command(self) -> str:
        """The command line without the folders of this machine."""
        words = ["ldrf reproduce", self.recipe]
        for name in ("data", "model", "weights"):
            value = getattr(self, name)
            if value is not None:
                words += [f"--{name}", "FILE" if name == "weights" else _public(value)]
        words += ["--quick"] if self.quick else []
        for name in ("images", "test_images", "steps", "iterations"):
            value = getattr(self, name)
            words += [f"--{name.replace('_', '-')} {value}"] if value is not None else []
        return " ".join(words)


def _public(name: str) -> str:
    """A model or data by name without a folder: 'cifar10:FOLDER', 'engine.py:resnet50_v1'."""
    kind, colon, rest = name.rpartition(":")
    if kind.endswith(".py"):
        return f"{Path(kind).name}:{rest}"
    return f"{kind}:FOLDER" if kind in ("cifar10", "imagefolder") else f"{kind}{colon}{rest}"


def _open(recipe: Recipe, model: str, weights: str | None, data: str) -> Subject:
    train = open_data(data, "train", random_crops=recipe.random_crops)
    return Subject(open_model(model, weights).model, train, open_data(data, "test"), partial(open_cifar10, data))
