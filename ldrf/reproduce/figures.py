"""Figures as data, and how matplotlib draws them: the same figure always gives the same SVG."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ldrf.errors import LdrfError
from ldrf.files.writing import replacing
from ldrf.reproduce.maps import unpack

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

STYLE: dict[Any, Any] = {
    "svg.hashsalt": "ldrf",
    "font.family": ["DejaVu Sans"],
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.edgecolor": "#888888",
    "grid.color": "#e4e4e4",
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
}
GAP = 2  # pixels between feature maps
CROWDED = 4  # lines beyond which the legend stands beside the chart


@dataclass(frozen=True)
class Series:
    """One line or one kind of bar; with an empty ``line`` only its markers are drawn."""

    label: str
    points: tuple[tuple[float, float], ...]
    colour: str
    line: str = "-"
    marker: str = "o"


@dataclass(frozen=True)
class LineChart:
    """Lines over a number."""

    name: str
    caption: str
    x: str
    y: str
    series: tuple[Series, ...]
    ticks: tuple[float, ...] = ()
    from_zero: bool = False


@dataclass(frozen=True)
class BarChart:
    """Groups of bars: each series has a point (group, value) for every group it is in."""

    name: str
    caption: str
    groups: tuple[str, ...]
    y: str
    series: tuple[Series, ...]


@dataclass(frozen=True)
class MapSheet:
    """An image and the maps that the dense and the slim network make of it, packed as text."""

    name: str
    caption: str
    image: dict[str, Any]
    dense: dict[str, Any]
    slim: dict[str, Any]


Figure = LineChart | BarChart | MapSheet


def draw(figure: Figure, path: Path) -> None:
    """Write ``figure`` as SVG, whole or not at all, without dates or random names in it."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure as Canvas
    except ImportError as problem:
        raise LdrfError("Figures need matplotlib: pip install 'ldrf[reproduce]'.") from problem
    with rc_context(STYLE):
        canvas = Canvas(figsize=_size(figure), layout="constrained")
        if isinstance(figure, MapSheet):
            _draw_maps(canvas, figure)
        elif isinstance(figure, BarChart):
            _draw_bars(canvas.subplots(), figure)
        else:
            _draw_lines(canvas.subplots(), figure)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as beside:
            canvas.savefig(beside, format="svg", metadata={"Date": None, "Creator": None}, facecolor="white")


def _size(figure: Figure) -> tuple[float, float]:
    if isinstance(figure, MapSheet):
        return 7.2, 3.6
    crowded = len(figure.series) > CROWDED
    return (7.2 if crowded else 5.6), (3.9 if crowded else 3.3)


def _draw_lines(axes: "Axes", figure: LineChart) -> None:
    for series in figure.series:
        xs, ys = zip(*series.points, strict=True)
        line = series.line or "none"
        axes.plot(xs, ys, label=series.label, linestyle=line, marker=series.marker, color=series.colour, clip_on=False)
    if figure.ticks:
        axes.set_xticks(figure.ticks, [f"{tick:g}" for tick in figure.ticks])
    if figure.from_zero:
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0] if _lowest(figure) < 0 else 0.0))
    axes.set(xlabel=figure.x, ylabel=figure.y)
    if len(figure.series) > CROWDED:
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    else:
        axes.legend()


def _lowest(figure: LineChart) -> float:
    return min(value for series in figure.series for _, value in series.points)


def _draw_bars(axes: "Axes", figure: BarChart) -> None:
    width = 0.8 / max(len(figure.series), 1)
    for index, series in enumerate(figure.series):
        offset = (index - (len(figure.series) - 1) / 2) * width
        places = [group + offset for group, _ in series.points]
        bars = axes.bar(places, [v for _, v in series.points], 0.92 * width, color=series.colour, label=series.label)
        axes.bar_label(bars, fmt="%.2f", padding=2, fontsize=7)
    axes.set_xticks(range(len(figure.groups)), figure.groups)
    axes.set_ylabel(figure.y)
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=len(figure.series), borderaxespad=0.2)


def _draw_maps(canvas: "Canvas", figure: MapSheet) -> None:
    dense, slim = (_sheet(maps) for maps in (figure.dense, figure.slim))
    parts = canvas.subplots(1, 3, width_ratios=[1, 2.6, 1.3])
    count = {"dense": figure.dense["shape"][0], "slim": figure.slim["shape"][0]}
    parts[0].imshow(unpack(figure.image).permute(1, 2, 0).numpy(), interpolation="nearest")
    for axes, sheet in ((parts[1], dense), (parts[2], slim)):
        axes.imshow(sheet, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
    titles = ("(a) image", f"(b) dense, {count['dense']} maps", f"(c) slim, {count['slim']} maps")
    for axes, title in zip(parts, titles, strict=True):
        axes.set_title(title)
        axes.set_anchor("N")
        axes.set_axis_off()


def _sheet(packed: dict[str, Any]) -> Any:
    """Maps [n, h, w] side by side in about a square, with white between them."""
    maps = unpack(packed)
    n, h, w = maps.shape
    columns = 2 if n <= 8 else next(c for c in range(1, n + 1) if c * c >= n)
    rows = -(-n // columns)
    sheet = maps.new_full((rows * (h + GAP) - GAP, columns * (w + GAP) - GAP), 255)
    for index, one in enumerate(maps):
        top, left = index // columns * (h + GAP), index % columns * (w + GAP)
        sheet[top : top + h, left : left + w] = one
    return sheet.numpy()
