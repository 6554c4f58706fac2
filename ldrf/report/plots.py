"""Line plots as inline SVG: spectra, error against width, and accuracy against speed-up.

Labels go through ``Markup.format``, which escapes them; colours come from the page's style sheet.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from ldrf.report.runs import UnitRow
from ldrf.report.scales import LinearScale, LogScale, Ticks, anchor, thinned

Places = Sequence[tuple[float, float]]  # across and up, both from 0 to 1


@dataclass(frozen=True)
class Frame:
    """The space a plot is drawn in: its size, and the margins for what is written beside it."""

    wide: int = 240
    high: int = 124
    left: int = 38
    bottom: int = 18
    top: int = 12
    right: int = 10

    def x(self, across: float) -> float:
        return round(self.left + across * (self.wide - self.left - self.right), 1)

    def y(self, up: float) -> float:
        return round(self.high - self.bottom - up * (self.high - self.bottom - self.top), 1)

    def path(self, places: Places) -> Markup:
        steps = " ".join(f"{self.x(u)},{self.y(v)}" for u, v in places)
        return Markup('<polyline class="curve" points="{}"/>').format(steps)

    def area(self, places: Places) -> Markup:
        """What lies under a line."""
        around = [(places[0][0], 0.0), *places, (places[-1][0], 0.0)]
        return Markup('<polygon class="area" points="{}"/>').format(
            " ".join(f"{self.x(u)},{self.y(v)}" for u, v in around)
        )

    def across(self, ticks: Ticks) -> Markup:
        """Numbers under the plot."""
        text = Markup('<text x="{}" y="{}" text-anchor="{}">{}</text>')
        down = self.high - self.bottom + 13
        return Markup("").join(text.format(self.x(u), down, anchor(u), name) for u, name in ticks)

    def up(self, ticks: Ticks) -> Markup:
        """Numbers at the left of the plot, each with its line."""
        mark = Markup(
            '<line class="grid" x1="{}" x2="{}" y1="{y}" y2="{y}"/><text x="{}" y="{}" text-anchor="end">{}</text>'
        )
        start, end = self.x(0), self.x(1)
        return Markup("").join(
            mark.format(start, end, self.left - 6, self.y(v) + 3.5, name, y=self.y(v)) for v, name in ticks
        )

    def mark(self, kind: str, across: float, name: str) -> Markup:
        """An upright line with its name on top."""
        return Markup(
            '<line class="{0}" x1="{1}" x2="{1}" y1="{2}" y2="{3}"/><text class="{0}" x="{1}" y="{4}" '
            'text-anchor="{5}">{6}</text>'
        ).format(kind, self.x(across), self.y(0), self.y(1), self.top - 3, anchor(across), name)

    def dot(self, across: float, up: float, title: str = "") -> Markup:
        """A point; ``title`` shows when the pointer is over it."""
        hint = Markup("<title>{}</title>").format(title) if title else ""
        return Markup('<circle cx="{}" cy="{}" r="4">{}</circle>').format(self.x(across), self.y(up), hint)

    def ring(self, across: float, up: float) -> Markup:
        """A ring around the point that is recommended."""
        return Markup('<circle class="ring" cx="{}" cy="{}" r="8"/>').format(self.x(across), self.y(up))

    def label(self, across: float, up: float, name: str, left: bool) -> Markup:
        """A name at the left or right of a point, or above it where the plot ends."""
        text = Markup('<text class="named" x="{}" y="{}" text-anchor="{}">{}</text>')
        x, y = self.x(across), self.y(up)
        if across > 0.85:
            return text.format(x, y - 12, "end", name)
        return text.format(x + (-12 if left else 12), y + 4, "end" if left else "start", name)

    def drawn(self, label: str, parts: Iterable[Markup]) -> Markup:
        return Markup('<svg class="plot" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
            self.wide, self.high, label, Markup("").join(parts)
        )


def spectrum_plot(unit: UnitRow, points: int) -> Markup:
    """Singular values of the unit's weight relative to the largest, with its rank marked."""
    frame, count = Frame(), len(unit.spectrum)
    top = max(unit.spectrum[0], 1e-30)

    def across(i: int) -> float:
        return i / max(count - 1, 1)

    line = [(across(i), unit.spectrum[i] / top) for i in thinned(count, points)]
    parts = [frame.across([(0.0, "1"), (1.0, str(count))]), frame.up([(0.0, "0"), (1.0, "1")])]
    parts += [frame.area(line), frame.path(line)]
    if unit.rank <= count:
        parts.append(frame.mark("rank", across(unit.rank - 1), f"z = {unit.rank}"))
    return frame.drawn(f"{unit.name}: {count} singular values, rank {unit.rank}", parts)


def curve_scale(units: Iterable[UnitRow]) -> LogScale:
    """One scale for the error curves of all units; it ends at 1, an error as large as the signal itself."""
    return LogScale.around(min(error, 1.0) for unit in units for error in unit.curve)


def curve_plot(unit: UnitRow, scale: LogScale, points: int) -> Markup:
    """Estimated error at every width, with the width that was chosen marked."""
    frame, n = Frame(), len(unit.curve) - 1
    line = [(w / n, scale.place(unit.curve[w])) for w in thinned(n + 1, points)]
    width = min(unit.width, n)
    (bottom, *between, top) = scale.ticks
    ticks = [bottom, *((place, "") for place, _ in between), top]
    parts = [frame.across([(0.0, "0"), (1.0, str(n))]), frame.up(ticks)]
    parts += [frame.path(line), frame.mark("chosen", width / n, str(width))]
    parts.append(frame.dot(width / n, scale.place(unit.curve[width])))
    return frame.drawn(f"{unit.name}: estimated error {unit.curve[width]:.3g} at {width} of {n} neurons", parts)


@dataclass(frozen=True)
class Point:
    """One slim network in the plot of accuracy against speed-up."""

    speedup: float
    accuracy: float
    label: str


@dataclass(frozen=True)
class Series:
    """Slim networks made from one dense network, and the accuracy of that one."""

    label: str
    dense: float
    points: tuple[Point, ...]


def tradeoff_plot(
    series: Sequence[Series],
    across: str = "speed-up, dense MACs / slim MACs",
    up: str = "top-1, %",
    chosen: str | None = None,
    labelled: bool = False,
) -> Markup:
    """Accuracy against speed-up, a line a network, from the dense one at 1x (the paper's Fig. 5).

    The point with the label ``chosen`` is ringed; ``labelled`` writes every point's label beside it.
    """
    frame = Frame(460, 290, left=44, bottom=40, top=24, right=14)
    x = LinearScale.around([1.0, *(p.speedup for s in series for p in s.points)])
    y = LinearScale.around([a for s in series for a in (s.dense, *(p.accuracy for p in s.points))])
    parts = [frame.up(y.ticks), frame.across([(u, f"{name}x") for u, name in x.ticks])]
    for i, one in enumerate(series):
        dots = [(1.0, one.dense, f"{one.label}, dense: {one.dense:.2f} %")]
        dots += [(p.speedup, p.accuracy, f"{p.label}: {p.accuracy:.2f} % at {p.speedup:.2f}x") for p in one.points]
        places = [(x.place(speedup), y.place(accuracy), title) for speedup, accuracy, title in sorted(dots)]
        drawn = [frame.path([p[:2] for p in places]), *(frame.dot(*p) for p in places)]
        drawn += [frame.ring(x.place(p.speedup), y.place(p.accuracy)) for p in one.points if p.label == chosen]
        if labelled:
            drawn += [
                frame.label(x.place(p.speedup), y.place(p.accuracy), p.label, left=i % 2 == 0)
                for i, p in enumerate(one.points)
            ]
        parts.append(Markup('<g class="s{}">{}</g>').format(i % 6, Markup("").join(drawn)))
    named = Markup('<text class="axis" x="{}" y="{}"{}>{}</text>')
    parts.append(named.format(0, 12, "", up))
    end = Markup(' text-anchor="end"')
    parts.append(named.format(frame.wide - frame.right, frame.high - 6, end, across))
    return frame.drawn(f"{up.removesuffix(', %')} against {across}", parts)
