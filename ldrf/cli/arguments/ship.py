"""Arguments of ``ldrf ship``."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

from tyro.conf import Positional, arg

from ldrf.cli.arguments.base import Arguments, UsageError
from ldrf.cli.arguments.prune import read_latency
from ldrf.config import Deployment, FinetuneConfig, PruneConfig
from ldrf.errors import LdrfError
from ldrf.shipping.recipe import ShipConfig, read_config, read_yaml

HELP = """Make a checked, fast file of a trained network: prune, fine-tune without labels, export, quantise, time.

For example: ldrf ship vgg9 --data sample --latency 2 --int8 --out release

The same command goes on where it was stopped. 'ldrf ship release/ship.yaml --out again' repeats a release."""
OWN = {"model": str, "weights": str, "architecture": str, "data": str, "images": int, "test_images": int, "out": str}


@dataclass(frozen=True)
class Ship(Arguments):
    """Arguments of ``ldrf ship``."""

    command: ClassVar[str] = "ship"
    help: ClassVar[str] = HELP

    model: Annotated[Positional[str], arg(metavar="MODEL or YAML")]
    """vgg9, resnet20, resnet56, torchvision:NAME, timm:NAME, file.py:factory, a result folder; or a .yaml with all
    settings."""
    data: Annotated[str | None, arg(metavar="DATA")] = None
    """Images: sample, cifar10:folder, imagefolder:folder, or file.py:factory."""
    out: Annotated[Path | None, arg(metavar="FOLDER")] = None
    """Folder of the release: the file to run, slim/, report.html, example.py, ship.yaml."""
    latency: Annotated[str | None, arg(metavar="FLOAT or TIME")] = None
    """Target: dense time over slim time, measured with --runtime, --batch and --threads; or a time such as 4ms."""
    speedup: Annotated[float | None, arg(metavar="FLOAT")] = None
    """Target: dense MACs over slim MACs."""
    params: Annotated[float | None, arg(metavar="FLOAT")] = None
    """Target: dense parameters over slim parameters."""
    max_drop: Annotated[float | None, arg(metavar="POINTS")] = None
    """Target: the fastest network that loses at most so many points of agreement with the dense one."""
    int8: bool = False
    """Also make a file in int8."""
    max_int8_drop: Annotated[float, arg(metavar="POINTS")] = ShipConfig.max_int8_drop
    """Points of agreement that int8 may cost; a file that costs more is refused."""
    no_finetune: bool = False
    """Leave fine-tuning out."""
    epochs: int = FinetuneConfig.epochs
    """Passes of fine-tuning over the images."""
    minutes: Annotated[float | None, arg(metavar="FLOAT")] = None
    """Stop fine-tuning by then."""
    weights: Annotated[str | None, arg(metavar="FILE")] = None
    """Weights of the model, .safetensors or .pth; random for untrained ones, as a trial."""
    architecture: Annotated[str | None, arg(metavar="MODEL")] = None
    """The dense model of a result folder that does not name it."""
    images: int = 2048
    """Number of training images to use, without their labels."""
    test_images: Annotated[int | None, arg(metavar="INT")] = None
    """Number of labelled test images to compare all networks on; all by default, 0 for none."""
    device: Annotated[str, arg(metavar="DEVICE")] = "auto"
    """Where to compute: auto (an accelerator if there is one), cpu, cuda:0, ..."""
    json: bool = False
    """Print one JSON object instead of the table."""
    deployment: Deployment = field(default_factory=Deployment)
    config: PruneConfig = field(default_factory=PruneConfig)

    @property
    def recipe(self) -> bool:
        """Whether a file with all settings was named."""
        return self.model.endswith((".yaml", ".yml"))

    def check(self) -> None:
        self.settings()

    def settings(self) -> tuple[dict[str, Any], ShipConfig]:
        """What is shipped, by the names of :data:`OWN`, and how."""
        try:
            own, config = self._from_file() if self.recipe else self._from_flags()
        except LdrfError as problem:
            raise UsageError(str(problem)) from problem
        for name in ("model", "data", "out"):
            if not own.get(name):
                flag = "MODEL" if name == "model" else f"--{name}"
                raise UsageError(f"Shipping needs {flag}{f', or {name}: in the file' if self.recipe else ''}.")
        return own, config

    def _from_file(self) -> tuple[dict[str, Any], ShipConfig]:
        values = read_yaml(self.model)
        own = {name: values.pop(name) for name in OWN if name in values}
        for name, value in own.items():
            if value is not None and not isinstance(value, OWN[name]):
                raise UsageError(f"'{name}' in '{self.model}' must be a {OWN[name].__name__}. Got {value!r} instead.")
        given = {"data": self.data, "out": None if self.out is None else str(self.out)}
        own |= {name: value for name, value in given.items() if value is not None}
        values.pop("checksums", None)
        default = dict.fromkeys(OWN) | {"images": self.images, "test_images": self.test_images}
        return default | own, read_config(values)

    def _from_flags(self) -> tuple[dict[str, Any], ShipConfig]:
        where = self.deployment
        tuning = None if self.no_finetune else FinetuneConfig(epochs=self.epochs, minutes=self.minutes)
        config = ShipConfig(
            latency=read_latency(self.latency),
            speedup=self.speedup,
            params=self.params,
            max_drop=self.max_drop,
            deployment=where if where.runtime else replace(where, runtime="onnxruntime"),
            int8=self.int8,
            max_int8_drop=self.max_int8_drop,
            prune=self.config,
            finetune=tuning,
        )
        own = {name: getattr(self, name) for name in OWN}
        return {**own, "out": None if self.out is None else str(self.out)}, config
