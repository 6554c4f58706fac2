"""``ldrf sweep``: many slim networks from one survey, and one page about them."""

from pathlib import Path
from typing import Any

from rich.table import Table

import ldrf
from ldrf.cli.arguments.sweep import Sweep
from ldrf.cli.images import open_test, timed_example
from ldrf.cli.models import NamedModel, open_model
from ldrf.cli.output import Report
from ldrf.cli.prune import network_metrics
from ldrf.data.sources import Batches, open_data
from ldrf.errors import LdrfError
from ldrf.files.result_folders import RECORD
from ldrf.report import write_report
from ldrf.report.comparison import pick
from ldrf.report.featuremaps import feature_maps
from ldrf.report.runs import ReportedRun, read_run
from ldrf.runtime.tables import printable
from ldrf.sweeping import Point


def run(arguments: Sweep) -> Report:
    """Prune to every target, measure, save, and write the page."""
    out = arguments.out
    if out.exists() and not out.is_dir():
        raise LdrfError(f"'{out}' is a file: --out needs a folder.")
    named = open_model(arguments.model, arguments.weights, arguments.architecture, arguments.device)
    batches = open_data(arguments.data, "train").take(arguments.images, arguments.config.seed)
    test = open_test(arguments.data, arguments.test_images)
    points = []
    asked = {"ignore": arguments.ignore, "method": arguments.method, "config": arguments.config}
    where = {"deployment": arguments.where(), "out": out, "resume": arguments.resume, "save": False}
    for point in ldrf.sweep(named.model, batches, **arguments.targets(), **asked, **where):
        points.append(point)
        _keep(point, arguments, named, batches, test)
        if not arguments.json:
            print(_told(point), flush=True)
    folders = [out / point.name for point in points if (out / point.name / RECORD).is_file()]
    if not folders:
        raise LdrfError(f"No target of the sweep was reached: {points[0].reason}")
    page = write_report(folders, out / "report.html")
    runs = [read_run(folder) for folder in folders]
    best = pick(runs)
    data = {
        "points": [_described(run, run is best) for run in runs],
        "out_of_reach": {p.name: p.reason for p in points if p.result is None and not (out / p.name).exists()},
        "report": str(page),
    }
    return Report(data, [_table(runs, best), f"Saved in {out}; see {page}"])


def _keep(point: Point, arguments: Sweep, named: NamedModel, batches: Batches, test: Batches | None) -> None:
    """Save a slim network with what was measured of it."""
    if point.result is None:
        return
    example = timed_example(named.model, batches, point.result)
    metrics = network_metrics(named.model, point.result, example, test)
    if point.drop is not None:
        metrics["agreement"] = {"slim": 100 - point.drop}
    details = {"featuremaps": feature_maps(named.model, point.result, example)}
    source = {**named.source, "data": arguments.data}
    ldrf.save(point.result, arguments.out / point.name, metrics=metrics, source=source, details=details)


def _told(point: Point) -> str:
    if point.result is None:
        return f"{point.name}: {point.reason}"
    agrees = "" if point.drop is None else f"; agreement with the dense network {100 - point.drop:.2f} %"
    return f"{point.name}: {point.result.headline()}{agrees}"


def _described(run: ReportedRun, is_pick: bool) -> dict[str, Any]:
    return {
        "folder": str(run.folder),
        "target": run.target,
        "speedup": run.speedup,
        "latency": None if run.latency is None else run.latency.ratio,
        "top1": None if run.top1 is None else run.top1.slim,
        "agreement": run.agreement,
        "pick": is_pick,
    }


def _table(runs: list[ReportedRun], best: ReportedRun | None) -> Table:
    table = Table("result", "fewer MACs", "faster", "top-1", "agreement", "")
    for column in table.columns[1:5]:
        column.justify = "right"
    for run in runs:
        cells = (
            Path(run.folder).name,
            f"{run.speedup:.2f}x",
            "-" if run.latency is None else f"{run.latency.ratio:.2f}x",
            "-" if run.top1 is None else f"{run.top1.slim:.2f} %",
            "-" if run.agreement is None else f"{run.agreement:.2f} %",
            "pick" if run is best else "",
        )
        table.add_row(*map(printable, cells))
    return table
