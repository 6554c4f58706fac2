"""``ldrf demo``: the bundled VGG-9 made cheaper on the bundled images."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from ldrf.cli.output import Report
from ldrf.cli.prune import Prune
from ldrf.config import PruneConfig

HELP = """Prune the bundled VGG-9 on bundled CIFAR-10 images, without labels or fine-tuning, and show what it cost.

For example: ldrf demo --speedup 5"""


@dataclass(frozen=True)
class Demo:
    """Arguments of ``ldrf demo``."""

    out: Annotated[Path, arg(metavar="FOLDER")] = Path("runs/demo")
    """Result folder; an earlier result in it is replaced."""
    speedup: float = 3.0
    """Dense MACs over slim MACs."""
    json: bool = False
    """Print one JSON object instead of the tables."""

    def run(self) -> Report:
        """Calibrate on 2,000 training images and evaluate on 2,000 test images."""
        quick = PruneConfig(steps=50, joint_steps=250)  # a few minutes on two cores
        return Prune(model="vgg9", data="sample", out=self.out, speedup=self.speedup, force=True, config=quick).run()
