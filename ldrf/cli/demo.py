"""``ldrf demo``: the bundled VGG-9 made cheaper on the bundled images."""

from ldrf.cli import prune
from ldrf.cli.arguments.demo import Demo
from ldrf.cli.arguments.prune import Prune
from ldrf.cli.output import Report
from ldrf.config import PruneConfig


def run(arguments: Demo) -> Report:
    """Calibrate on 2,000 training images and evaluate on 2,000 test images."""
    quick = PruneConfig(steps=0, joint_steps=360, augment=True)  # about a minute on two cores with bfloat16
    return prune.run(Prune("vgg9", "sample", arguments.out, speedup=arguments.speedup, force=True, config=quick))
