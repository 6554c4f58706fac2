"""``ldrf report``: one HTML page about a result, or about several side by side."""

from ldrf.cli.arguments.report import WriteReport
from ldrf.cli.output import Report
from ldrf.errors import LdrfError
from ldrf.files.result_folders import RECORD
from ldrf.report import write_report


def run(arguments: WriteReport) -> Report:
    """Write the page and say where it is."""
    given = list({folder.expanduser().resolve(): folder for folder in arguments.folders}.values())
    results = [folder for folder in given if (folder.expanduser() / RECORD).is_file()]
    others = [str(folder) for folder in given if folder not in results]
    if not results:
        raise LdrfError(f"'{others[0]}' is not a result folder: it has no {RECORD}.")
    page = write_report(results, arguments.out)
    size = page.stat().st_size
    data = {"report": str(page), "bytes": size, "runs": [str(f) for f in results], "passed_over": others}
    lines = [f"Wrote {page} ({size / 1000:,.0f} kB)"]
    lines += [f"Skipped {name}: not a result folder" for name in others]
    return Report(data, ["\n".join(lines)])
