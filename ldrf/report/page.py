"""The page itself: one HTML file that needs no network, made from a template."""

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ldrf._version import __version__
from ldrf.errors import LdrfError
from ldrf.files.result_folders import PAGE
from ldrf.files.writing import write_whole
from ldrf.report import bars, plots
from ldrf.report.comparison import pick, score_name, series_of, shipped_series
from ldrf.report.headline import points, settings, short, tiles
from ldrf.report.loading import load_code
from ldrf.report.runs import ReportedRun, UnitRow, read_run

TEMPLATES = Path(__file__).parent / "templates"
# What keeps the page of a deep network, or of many, under a megabyte:
PLOTTED = 120  # units with a spectrum and an error curve
POINTS = 4000  # in all those plots together
TOLD = 300  # units of several runs together that are still told one by one


def write_report(folders: Sequence[str | Path], out: str | Path | None = None) -> Path:
    """Write the page about these result folders, and say where.

    One folder has its page in itself, several beside them; ``out`` names another file.
    """
    if not folders:
        raise LdrfError("A report needs at least one result folder. Got none instead.")
    runs = [read_run(folder) for folder in folders]
    path = _place([run.folder for run in runs]) if out is None else Path(out).expanduser()
    if path.suffix != ".html" or path.is_dir():
        raise LdrfError(f"The report must be a file that ends in .html. Got '{path}' instead.")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, render(runs))
    return path


def _place(folders: Sequence[Path]) -> Path:
    if len(folders) == 1:
        return folders[0] / PAGE
    if len({folder.resolve().parent for folder in folders}) > 1:
        raise LdrfError("The results do not lie in one folder: say where the report goes with --out FILE.html.")
    return folders[0].parent / PAGE


def render(runs: Sequence[ReportedRun]) -> str:
    """The page as text: all about one run, or a comparison and a shorter part about each of several."""
    style, script = ((TEMPLATES / name).read_text() for name in ("style.css", "script.js"))
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    several = runs if len(runs) > 1 else []
    series, timed, best = series_of(several), series_of(several, by_time=True), pick(several)
    return environment.get_template("page.html").render(
        runs=runs,
        series=series,
        tradeoffs=_tradeoffs(several, series, timed, best),
        pick=best,
        shipped_plot=_shipped_plot(runs[0]) if len(runs) == 1 else None,
        small_plots=small_plots(runs[0]) if len(runs) == 1 else [],
        briefly=len(runs) > 1 and sum(len(run.units) for run in runs) > TOLD,
        style=Markup(style),
        script=Markup(script),
        policy=f"default-src 'none'; img-src data:; style-src '{_digest(style)}'; script-src '{_digest(script)}'",
        version=__version__,
        bars=bars,
        tiles=tiles,
        settings=settings,
        load_code=load_code,
        short=short,
        points=points,
    )


def _tradeoffs(
    runs: Sequence[ReportedRun], series: Sequence[plots.Series], timed: Sequence[plots.Series], best: ReportedRun | None
) -> list[Markup]:
    """Accuracy against the clock where that was looked at, and against MACs."""
    up, chosen = score_name(runs), None if best is None else str(best.folder)
    drawn = [plots.tradeoff_plot(timed, "faster, dense time / slim time", up, chosen)] if timed else []
    return [*drawn, plots.tradeoff_plot(series, up=up, chosen=chosen)] if series else drawn


def _shipped_plot(run: ReportedRun) -> Markup | None:
    if run.shipping is None:
        return None
    series, up = shipped_series(run.shipping)
    return plots.tradeoff_plot(series, "faster, dense time / time", up, series[0].points[-1].label, labelled=True)


def _digest(text: str) -> str:
    """What the page's own policy lets run: this very text, and nothing that a layer's name might smuggle in."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def small_plots(run: ReportedRun) -> list[tuple[UnitRow, Markup | None, Markup | None]]:
    """Spectrum and error curve of each unit that has either; of very many, those cut hardest."""
    known = [unit for unit in run.units if unit.spectrum or len(unit.curve) > 1]
    hardest = sorted(known, key=lambda unit: unit.share)[:PLOTTED]
    drawn = [unit for unit in known if unit in hardest] if len(known) > PLOTTED else known
    scale, each = plots.curve_scale(drawn), max(12, min(64, POINTS // max(len(drawn), 1)))
    return [
        (
            unit,
            plots.spectrum_plot(unit, each) if unit.spectrum else None,
            plots.curve_plot(unit, scale, each) if len(unit.curve) > 1 else None,
        )
        for unit in drawn
    ]
