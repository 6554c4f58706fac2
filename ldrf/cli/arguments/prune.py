"""Arguments of ``ldrf prune``."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar

from tyro.conf import Positional, arg

from ldrf.cli.arguments.base import Arguments, UsageError
from ldrf.config import Deployment, PruneConfig, milliseconds
from ldrf.errors import LdrfError
from ldrf.registry import METHODS

if TYPE_CHECKING:
    MethodName = str
else:
    MethodName = Literal[METHODS.built_in]
T = TypeVar("T", int, float)

HELP = """Make a trained network cheaper from unlabelled images, without fine-tuning (Algorithm 1 of the paper).

For example: ldrf prune vgg9 --data sample --speedup 3 --out runs/slim"""


@dataclass(frozen=True)
class Prune(Arguments):
    """Arguments of ``ldrf prune``."""

    command: ClassVar[str] = "prune"
    help: ClassVar[str] = HELP

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
    """Target: neurons to keep in each named layer."""
    keep: Annotated[tuple[str, ...], arg(metavar="NAME=SHARE")] = ()
    """Target: share of the neurons to keep in each named layer."""
    objective: Annotated[str | None, arg(metavar="NAME=RATIO")] = None
    """Target: the ratio dense / slim of any objective by its name, such as params=2."""
    latency: Annotated[str | None, arg(metavar="FLOAT or TIME")] = None
    """Target: dense time over slim time, measured with --runtime, --batch and --threads; or a time such as 4ms."""
    max_drop: Annotated[float | None, arg(metavar="POINTS")] = None
    """Target: the fastest network that loses at most so many points of agreement with the dense one on held-out images,
    by time where --runtime is given and else by MACs."""
    method: MethodName = "ldrf"
    """The paper's own method, or a rival to compare with."""
    ignore: Annotated[tuple[str, ...], arg(metavar="NAME")] = ()
    """Layers to leave alone, by name or glob."""
    parts: Annotated[str | None, arg(metavar="NAME,NAME")] = None
    """Submodules to prune in place, such as backbone,rpn.head, where the model cannot be traced whole."""
    weights: Annotated[str | None, arg(metavar="FILE")] = None
    """Weights of the model, .safetensors or .pth; random for untrained ones, as a trial."""
    architecture: Annotated[str | None, arg(metavar="MODEL")] = None
    """The dense model of a result folder that does not name it."""
    images: int = 2048
    """Number of training images to calibrate on; only molchanov2017 uses their labels."""
    mirror: bool = False
    """Calibrate on every image and its mirror image: better where left and right are alike, and slower."""
    test_images: Annotated[int | None, arg(metavar="INT")] = None
    """Number of labelled test images to compare dense and slim on; all by default, 0 for none."""
    resume: bool = False
    """Continue the run in the folder if it was killed; the command must be the same."""
    force: bool = False
    """Replace an earlier result, or an unfinished run, in the folder."""
    device: Annotated[str, arg(metavar="DEVICE")] = "auto"
    """Where to compute: auto (an accelerator if there is one), cpu, cuda:0, ..."""
    json: bool = False
    """Print one JSON object instead of the tables."""
    deployment: Deployment = field(default_factory=Deployment)
    config: PruneConfig = field(default_factory=PruneConfig)

    def check(self) -> None:
        self.target()
        if self.deployment != Deployment() and self.latency is None and self.max_drop is None:
            raise UsageError("--runtime, --batch and --threads go with --latency or --max-drop.")

    def target(self) -> dict[str, Any]:
        """What to reach, as the keyword of :func:`ldrf.prune`."""
        given = {
            "speedup": self.speedup,
            "params": self.params,
            "widths": _pairs("--widths", self.widths, int) or None,
            "keep": _pairs("--keep", self.keep, float) or None,
            "objective": _objective(self.objective),
            "latency": read_latency(self.latency),
            "max_drop": self.max_drop,
        }
        target = {name: value for name, value in given.items() if value is not None}
        if len(target) != 1:
            raise UsageError(
                "Say what to reach with exactly one of --speedup, --params, --widths, --keep, --objective, --latency "
                "and --max-drop."
            )
        clocked = self.latency is not None or self.deployment != Deployment()
        return target | ({"deployment": self.deployment} if clocked else {})


def _objective(text: str | None) -> tuple[str, float] | None:
    """NAME=RATIO as a name and a number."""
    return None if text is None else next(iter(_pairs("--objective", (text,), float, "params=2").items()))


def read_latency(text: str | None) -> float | str | None:
    """A ratio as a number, a time as it stands."""
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        pass
    try:
        milliseconds(text)
    except LdrfError as problem:
        raise UsageError(str(problem)) from problem
    return text


def _pairs(
    flag: str, texts: tuple[str, ...], number: Callable[[str], T], example: str = "features.3=40"
) -> dict[str, T]:
    """NAME=NUMBER texts as a dict."""
    pairs: dict[str, T] = {}
    for text in texts:
        name, _, value = text.rpartition("=")
        try:
            pairs[name] = number(value)
        except ValueError:
            name = ""
        if not name:
            raise UsageError(f"{flag} takes NAME={number.__name__.upper()}, such as {example}. Got '{text}' instead.")
    return pairs
