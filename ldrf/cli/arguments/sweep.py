"""Arguments of ``ldrf sweep``."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

from tyro.conf import Positional, arg

from ldrf.cli.arguments.base import Arguments, UsageError
from ldrf.cli.arguments.prune import MethodName, read_latency
from ldrf.config import Deployment, PruneConfig

T = TypeVar("T")

HELP = """Prune to several targets from one survey, and show accuracy against latency and MACs on one page.

For example: ldrf sweep vgg9 --data sample --speedup 2,3,4 --out runs/sweep"""


@dataclass(frozen=True)
class Sweep(Arguments):
    """Arguments of ``ldrf sweep``."""

    command: ClassVar[str] = "sweep"
    help: ClassVar[str] = HELP

    model: Annotated[Positional[str], arg(metavar="MODEL")]
    """vgg9, resnet20, resnet56, torchvision:NAME, timm:NAME, file.py:factory, or a result folder."""
    data: Annotated[str, arg(metavar="DATA")]
    """Images: sample, cifar10:folder, imagefolder:folder, or file.py:factory."""
    out: Annotated[Path, arg(metavar="FOLDER")]
    """Folder for the page, report.html, and a folder for each result."""
    speedup: Annotated[str | None, arg(metavar="FLOAT,...")] = None
    """Targets: dense MACs over slim MACs, with commas between them."""
    params: Annotated[str | None, arg(metavar="FLOAT,...")] = None
    """Targets: dense parameters over slim parameters."""
    latency: Annotated[str | None, arg(metavar="FLOAT or TIME,...")] = None
    """Targets: dense time over slim time, measured with --runtime, --batch and --threads; or times such as 4ms."""
    max_drop: Annotated[str | None, arg(metavar="POINTS,...")] = None
    """Targets: the fastest network that loses at most so many points of agreement with the dense one, by time where
    --runtime is given and else by MACs."""
    method: MethodName = "ldrf"
    """The paper's own method, or a rival to compare with."""
    ignore: Annotated[tuple[str, ...], arg(metavar="NAME")] = ()
    """Layers to leave alone, by name or glob."""
    weights: Annotated[str | None, arg(metavar="FILE")] = None
    """Weights of the model, .safetensors or .pth."""
    architecture: Annotated[str | None, arg(metavar="MODEL")] = None
    """The dense model of a result folder that does not name it."""
    images: int = 2048
    """Number of training images to calibrate on; only molchanov2017 uses their labels."""
    test_images: Annotated[int | None, arg(metavar="INT")] = None
    """Number of labelled test images to compare on; all by default, 0 for none."""
    device: Annotated[str, arg(metavar="DEVICE")] = "auto"
    """Where to compute: auto (an accelerator if there is one), cpu, cuda:0, ..."""
    resume: bool = False
    """Pass over the results that are done, and continue one that was killed."""
    json: bool = False
    """Print one JSON object instead of the tables."""
    deployment: Deployment = field(default_factory=Deployment)
    config: PruneConfig = field(default_factory=PruneConfig)

    def check(self) -> None:
        if not any(self.targets().values()):
            raise UsageError("Say what to reach with --speedup, --params, --latency or --max-drop, such as 1.5,2,3.")
        if self.deployment != Deployment() and not (self.latency or self.max_drop):
            raise UsageError("--runtime, --batch and --threads go with --latency or --max-drop.")

    def targets(self) -> dict[str, list[Any]]:
        """What to reach, as keywords of :func:`ldrf.sweep`."""
        return {
            "speedup": _values("--speedup", self.speedup, float),
            "params": _values("--params", self.params, float),
            "latency": _values("--latency", self.latency, read_latency),
            "max_drop": _values("--max-drop", self.max_drop, float),
        }

    def where(self) -> Deployment | None:
        """Where a latency is measured, if one is asked for."""
        return self.deployment if self.latency or self.deployment != Deployment() else None


def _values(flag: str, text: str | None, read: Callable[[str], T]) -> list[T]:
    try:
        return [] if text is None else [read(part.strip()) for part in text.split(",")]
    except ValueError as problem:
        raise UsageError(f"{flag} takes numbers with commas between them, such as 1.5,2,3. Got '{text}'.") from problem
