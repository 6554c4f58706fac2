"""``ldrf reproduce``: the paper's tables and figures, and rival methods beside them."""

from dataclasses import replace
from functools import partial
from pathlib import Path

from ldrf.cli.arguments.reproduce import SCALES, Reproduce
from ldrf.cli.models import open_model
from ldrf.cli.output import Report
from ldrf.data.sources import open_cifar10, open_data
from ldrf.reproduce.cells import Shelf, run_cells
from ldrf.reproduce.measure import measure
from ldrf.reproduce.page import write_page
from ldrf.reproduce.recipe import Recipe, Scale
from ldrf.reproduce.recipes import RECIPES
from ldrf.reproduce.results import Results, earlier_records, write
from ldrf.reproduce.subject import Subject

QUICK_MODEL, QUICK_DATA = "vgg9", "sample"


def run(arguments: Reproduce) -> Report:
    """Run the cells that are missing, then write the results and the page."""
    recipe = RECIPES[arguments.recipe]
    scale = scale_of(arguments, recipe)
    model, data = model_and_data(arguments, recipe)
    subject = _open(recipe, model, arguments.weights, data, arguments.device)
    out = arguments.out or Path("runs/quick" if arguments.quick else ".")
    cells, digest = recipe.cells(scale), subject.digest()
    keys = {cell.key(digest) for cell in cells}
    earlier = {} if arguments.quick else earlier_records(out / "results" / f"{recipe.name}.json", keys)
    shelf = Shelf(arguments.work, digest, earlier)
    measured = partial(measure, subject=subject, shelf=shelf)
    outcome = run_cells(cells, shelf, measured, arguments.cells, arguments.minutes, arguments.again)
    settings = command_line(arguments), _public(model), _public(data), arguments.quick, scale
    results = Results(recipe.name, *settings, outcome.done, outcome.left, outcome.refused)
    written = [str(path) for path in (write(results, out / "results"), *write_page(out / "results", out / "docs"))]
    lines = [f"{len(outcome.done)} of {len(cells)} cells done."]
    lines += [f"Left: {', '.join(outcome.left)}."] if outcome.left else []
    lines += [f"{name} {reason}" for name, reason in outcome.refused.items()]
    lines += [f"Wrote {', '.join(written)}"]
    ended = {"done": list(outcome.done), "left": list(outcome.left), "refused": outcome.refused}
    return Report({"recipe": recipe.name, **ended, "written": written}, list(lines))


def scale_of(arguments: Reproduce, recipe: Recipe) -> Scale:
    """The recipe's full or quick scale, changed as the command line asks."""
    return replace(recipe.quick if arguments.quick else recipe.full, **arguments.scale())


def model_and_data(arguments: Reproduce, recipe: Recipe) -> tuple[str, str]:
    """Names of the model and the data, as asked for or by default."""
    own = arguments.weights is not None or arguments.data is not None or not arguments.quick
    return arguments.model or (recipe.model if own else QUICK_MODEL), arguments.data or QUICK_DATA


def command_line(arguments: Reproduce) -> str:
    """The command line without the folders of this machine."""
    words = ["ldrf reproduce", arguments.recipe]
    for name in ("data", "model", "weights"):
        value = getattr(arguments, name)
        if value is not None:
            words += [f"--{name}", "FILE" if name == "weights" else _public(value)]
    words += ["--quick"] if arguments.quick else []
    for name in SCALES:
        value = getattr(arguments, name)
        words += [f"--{name.replace('_', '-')} {value}"] if value is not None else []
    return " ".join(words)


def _public(name: str) -> str:
    """A model or data by name without a folder: 'cifar10:FOLDER', 'engine.py:resnet50_v1'."""
    kind, colon, rest = name.rpartition(":")
    if kind.endswith(".py"):
        return f"{Path(kind).name}:{rest}"
    return f"{kind}:FOLDER" if kind in ("cifar10", "imagefolder") else f"{kind}{colon}{rest}"


def _open(recipe: Recipe, model: str, weights: str | None, data: str, device: str) -> Subject:
    train = open_data(data, "train", random_crops=recipe.random_crops)
    named = open_model(model, weights, device=device)
    return Subject(named.model, train, open_data(data, "test"), partial(open_cifar10, data))
