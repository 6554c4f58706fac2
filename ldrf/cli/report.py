"""``ldrf report``: one HTML page about a result, or about several side by side."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from ldrf.cli.output import Report, UsageError
from ldrf.errors import LdrfError
from ldrf.files.result_folders import RECORD
from ldrf.report import write_report

HELP = """Write a self-contained HTML page: speed, accuracy, widths, errors, feature maps, and how to load the result.

For example: ldrf report runs/demo
Several results are compared, accuracy against speed-up: ldrf report runs/*"""


@dataclass(frozen=True)
class WriteReport:
    """Arguments of ``ldrf report``."""

    folders: Annotated[Positional[tuple[Path, ...]], arg(metavar="FOLDER")]
    """Result folders; what else a pattern such as runs/* catches is passed over."""
    out: Annotated[Path | None, arg(metavar="FILE")] = None
    """The page: report.html in the folder, or beside several folders, by default."""
    json: bool = False
    """Print one JSON object instead of the sentence."""

    def run(self) -> Report:
        """Write the page and say where it is."""
        given = list({folder.expanduser().resolve(): folder for folder in self.folders}.values())
        if not given:
            raise UsageError("Name at least one result folder, such as runs/demo.")
        results = [folder for folder in given if (folder.expanduser() / RECORD).is_file()]
        others = [str(folder) for folder in given if folder not in results]
        if not results:
            raise LdrfError(f"'{others[0]}' is not a result folder: it has no {RECORD}.")
        page = write_report(results, self.out)
        size = page.stat().st_size
        data = {"report": str(page), "bytes": size, "runs": [str(f) for f in results], "passed_over": others}
        lines = [f"Wrote {page} ({size / 1000:,.0f} kB)"]
        lines += [f"Passed over {name}: no result folder" for name in others]
        return Report(data, ["\n".join(lines)])
