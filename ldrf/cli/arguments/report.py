"""Arguments of ``ldrf report``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from tyro.conf import Positional, arg

from ldrf.cli.arguments.base import Arguments, UsageError

HELP = """Write a self-contained HTML page: speed, accuracy, widths, errors, feature maps, and how to load the result.

For example: ldrf report runs/demo
Several results are compared, accuracy against speedup: ldrf report runs/*"""


@dataclass(frozen=True)
class WriteReport(Arguments):
    """Arguments of ``ldrf report``."""

    command: ClassVar[str] = "report"
    help: ClassVar[str] = HELP

    folders: Annotated[Positional[tuple[Path, ...]], arg(metavar="FOLDER")]
    """Result folders; anything else that a pattern such as runs/* matches is skipped."""
    out: Annotated[Path | None, arg(metavar="FILE")] = None
    """The page: by default report.html in the folder, or beside several folders."""
    json: bool = False
    """Print one JSON object instead of the sentence."""

    def check(self) -> None:
        if not self.folders:
            raise UsageError("Name at least one result folder, such as runs/demo.")
