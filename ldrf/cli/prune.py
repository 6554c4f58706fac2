"""``ldrf prune``: the paper's method from the command line."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import torch
from rich.table import Table
from torch import nn
from tyro.conf import Positional, arg

import ldrf
from ldrf.cli.models import NamedModel, open_model
from ldrf.cli.output import Report, UsageError, comparison
from ldrf.cli.provenance import noted
from ldrf.config import PruneConfig
from ldrf.data.sources import Batches, open_data
from ldrf.errors import LdrfError
from ldrf.files.result_folders import unfinished
from ldrf.inputs import read_inputs
from ldrf.measuring.accuracy import Accuracy, measure_accuracy
from ldrf.measuring.timing import latency_ratio
from ldrf.registry import METHODS
from ldrf.report import write_report
from ldrf.report.featuremaps import feature_maps
from ldrf.result import PruneResult
from ldrf.runtime.processes import from_first, is_first
from ldrf.saving.journal import discard

HELP = """Make a trained network cheaper from unlabelled images, without fine-tuning (Algorithm 1 of the paper).

For example: ldrf prune vgg9 --data sample --speedup 3 --out runs/slim"""

TIMED_IMAGES = 16
T = TypeVar("T", int, float)
if TYPE_CHECKING:
    MethodName = str
else:
    MethodName = Literal[METHODS.built_in]


@dataclass(frozen=True)
class Prune:
    """Arguments of ``ldrf prune``."""

    model: Annotated[Positional[str], arg(metavar="MODEL")]
    """vgg9, resnet20, resnet56, torchvision:NAME, timm:NAME, file.py:factory, or a result folder."""
    data: Annotated[str, arg(metavar="DATA")]
    """Images: sample, cifar10:folder, imagefolder:folder, or file.py:factory."""
    out: Annotated[Path, arg(metavar="FOLDER")]
    """Result folder: model.safetensors, ldrf.json and report.html."""
    speedup: Annotated[float | None, arg(metavar="FLOAT")] = None
    """Target: dense MACs over slim MACs."""
    params: Annotated[float | None, arg(metavar="FLOAT")] = None
    """Target: dense parameters over slim parameters."""
    widths: Annotated[tuple[str, ...], arg(metavar="NAME=INT")] = ()
    """Target: neurons to keep by layer."""
    keep: Annotated[tuple[str, ...], arg(metavar="NAME=SHARE")] = ()
    """Target: share of the neurons to keep by layer."""
    method: MethodName = "ldrf"
    """The paper's own method, or a rival to compare with."""
    ignore: Annotated[tuple[str, ...], arg(metavar="NAME")] = ()
    """Layers to leave alone, by name or glob."""
    weights: Annotated[str | None, arg(metavar="FILE")] = None
    """Weights of the model, .safetensors or .pth."""
    architecture: Annotated[str | None, arg(metavar="MODEL")] = None
    """The dense model of a result folder that does not name it."""
    images: int = 2048
    """Images to calibrate on, of the data's training images; only molchanov2017 uses their labels."""
    mirror: bool = False
    """Calibrate on every image and its mirror image: better where left and right are alike, and slower."""
    test_images: Annotated[int | None, arg(metavar="INT")] = None
    """Labelled test images to compare dense and slim on: all by default, 0 for none."""
    resume: bool = False
    """Go on with the run in the folder, if it was killed; it must be the same command."""
    force: bool = False
    """Replace an earlier result, or an unfinished run, in the folder."""
    json: bool = False
    """Print one JSON object instead of the tables."""
    config: PruneConfig = field(default_factory=PruneConfig)

    def run(self) -> Report:
        """Prune, compare, save."""
        self.target()
        from_first(self._check_out)
        named, batches = self.opened()
        test = open_test(self.data, self.test_images)
        result = self.pruned(named.model, batches, out=self.out, resume=self.resume, save=False)
        if not is_first():
            return Report({})  # the first process measures and writes
        example = read_inputs(named.model, next(iter(batches))).map(lambda t: t[:TIMED_IMAGES])
        metrics: dict[str, Any] = {
            "macs": dict(zip(("dense", "slim"), result.macs, strict=True)),
            "parameters": dict(zip(("dense", "slim"), result.parameters, strict=True)),
            "latency_ms": latency_ratio(named.model, result.model.eval(), example),
            "timing": {"images": example.rows, "threads": torch.get_num_threads()},
        }
        if test is not None:
            dense = measure_accuracy(named.model, test, "evaluate dense")
            metrics["accuracy"] = _accuracy(dense, measure_accuracy(result.model, test, "evaluate slim"))
        source = {**named.source, "data": self.data}
        details = {"featuremaps": feature_maps(named.model, result, example)}
        ldrf.save(result, self.out, metrics=metrics, source=source, details=details, run=noted(self))
        page = write_report([self.out])
        data = {**result.as_dict(), "metrics": metrics, "source": source, "folder": str(self.out), "report": str(page)}
        return Report(data, [str(result), _summary(metrics), f"Saved in {self.out}; see {page}"])

    def _check_out(self) -> None:
        if not (self.resume and unfinished(self.out)):
            check_out(self.out, self.force)

    def opened(self) -> tuple[NamedModel, Batches]:
        """The model, and the images to calibrate on as they are before any are mirrored."""
        named = open_model(self.model, self.weights, self.architecture)
        return named, open_data(self.data, "train").take(self.images, self.config.seed)

    def pruned(self, model: nn.Module, batches: Batches, **options: Any) -> PruneResult:
        """The model pruned as the command line says."""
        given = ldrf.mirrored(batches) if self.mirror else batches
        asked = {**self.target(), "ignore": self.ignore, "method": self.method, "config": self.config}
        return ldrf.prune(model, given, **asked, **options)

    def target(self) -> dict[str, Any]:
        given = {
            "speedup": self.speedup,
            "params": self.params,
            "widths": _pairs("--widths", self.widths, int) or None,
            "keep": _pairs("--keep", self.keep, float) or None,
        }
        target = {name: value for name, value in given.items() if value is not None}
        if len(target) != 1:
            raise UsageError("Say what to reach with exactly one of --speedup, --params, --widths and --keep.")
        return target


def open_test(data: str, images: int | None) -> Batches | None:
    """Labelled test images where the data has them, unless none are wanted."""
    if images == 0:
        return None
    try:
        test = open_data(data, "test")
    except LdrfError:
        if images is not None:
            raise
        return None
    return test.take(images) if test.labelled else None


def check_out(folder: Path, force: bool) -> None:
    """Refuse, before the work, a folder that must not be written."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise LdrfError(f"'{folder}' is a file: --out needs a folder.")
    if unfinished(folder):
        if not force:
            raise LdrfError(
                f"'{folder}' holds an unfinished run: go on with it by --resume, choose another --out, "
                "or add --force to throw it away."
            )
        discard(folder)
    if not any(folder.iterdir()):
        return
    if not (folder / "ldrf.json").is_file():
        raise LdrfError(f"'{folder}' is not empty and holds no earlier result: choose another --out.")
    if not force:
        raise LdrfError(f"'{folder}' holds an earlier result: choose another --out, or add --force to replace it.")


def _pairs(flag: str, texts: tuple[str, ...], number: Callable[[str], T]) -> dict[str, T]:
    found: dict[str, T] = {}
    for text in texts:
        name, _, value = text.rpartition("=")
        try:
            found[name] = number(value)
        except ValueError:
            name = ""
        if not name:
            raise UsageError(
                f"{flag} takes NAME={number.__name__.upper()}, such as features.3=40. Got '{text}' instead."
            )
    return found


def _accuracy(dense: Accuracy, slim: Accuracy) -> dict[str, float | int]:
    return {
        "dense": dense.top1,
        "slim": slim.top1,
        "dense_top5": dense.top5,
        "slim_top5": slim.top5,
        "images": dense.images,
    }


def _summary(metrics: dict[str, Any]) -> Table:
    rows: dict[str, tuple[str, str, str]] = {}
    if "accuracy" in metrics:
        found = metrics["accuracy"]
        for name, suffix in (("top-1", ""), ("top-5", "_top5")):
            dense, slim = found[f"dense{suffix}"], found[f"slim{suffix}"]
            rows[f"{name}, {found['images']:,} images"] = (
                f"{dense:.2f} %",
                f"{slim:.2f} %",
                f"{slim - dense:+.2f} points",
            )
    shown = {"MACs": ("macs", ",.0f"), "parameters": ("parameters", ",.0f"), "latency": ("latency_ms", ".2f")}
    for name, (key, form) in shown.items():
        dense, slim = metrics[key]["dense"], metrics[key]["slim"]
        unit = f" ms / {metrics['timing']['images']}" if key == "latency_ms" else ""
        rows[name] = (f"{dense:{form}}{unit}", f"{slim:{form}}{unit}", f"{dense / slim:.2f}x less")
    return comparison(rows)
