"""Arguments of ``ldrf repeat``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from tyro.conf import Positional, arg

from ldrf.cli.arguments.base import Arguments

HELP = """Make a result again as its folder describes it, and compare bit for bit; exit code 3 where it differs.

For example: ldrf repeat runs/demo"""


@dataclass(frozen=True)
class Repeat(Arguments):
    """Arguments of ``ldrf repeat``."""

    command: ClassVar[str] = "repeat"
    help: ClassVar[str] = HELP

    folder: Annotated[Positional[str], arg(metavar="FOLDER")]
    """Result folder, made by 'ldrf prune' or 'ldrf demo'."""
    out: Annotated[Path | None, arg(metavar="FOLDER")] = None
    """Keep the new result in this folder."""
    model: Annotated[str | None, arg(metavar="MODEL")] = None
    """The model, if it has moved, or is a file.py:factory, which is run only if you name it here."""
    architecture: Annotated[str | None, arg(metavar="MODEL")] = None
    """The dense model of a result folder that was pruned again, if it is a file.py:factory."""
    data: Annotated[str | None, arg(metavar="DATA")] = None
    """The images, if they have moved, or are a file.py:factory."""
    weights: Annotated[str | None, arg(metavar="FILE")] = None
    """Weights of the model, if they have moved."""
    json: bool = False
    """Print one JSON object instead of the table."""
