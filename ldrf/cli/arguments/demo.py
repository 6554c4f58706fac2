"""Arguments of ``ldrf demo``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from tyro.conf import arg

from ldrf.cli.arguments.base import Arguments

HELP = """Prune the bundled VGG-9 on bundled CIFAR-10 images, without labels or fine-tuning, and compare the two.

For example: ldrf demo --speedup 5"""


@dataclass(frozen=True)
class Demo(Arguments):
    """Arguments of ``ldrf demo``."""

    command: ClassVar[str] = "demo"
    help: ClassVar[str] = HELP

    out: Annotated[Path, arg(metavar="FOLDER")] = Path("runs/demo")
    """Result folder; an earlier result in it is replaced."""
    speedup: float = 3.0
    """Dense MACs over slim MACs."""
    json: bool = False
    """Print one JSON object instead of the tables."""
