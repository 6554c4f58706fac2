"""One line of a chart per unit, as inline SVG: how wide it is, and how wrong.

Everything is placed in percent, so that a line stretches with the page while strokes and text keep their size.
Names go through ``Markup.format``, which escapes them; colours come from the page's style sheet.
"""

from collections.abc import Iterable

from markupsafe import Markup

from ldrf.report.runs import UnitRow
from ldrf.report.scales import LogScale, anchor


def width_bar(unit: UnitRow) -> Markup:
    """The unit's neurons as a track, those kept as a bar, its rank as a tick: the range (z, n] lies behind the tick."""
    label = f"{unit.name}: {unit.width} of {unit.full} neurons kept, rank {unit.rank}"
    rank = 100 * min(unit.rank / unit.full, 1)
    return Markup(
        '<svg class="line" role="img"><title>{label}</title>'
        '<rect class="track" width="100%" height="10" y="4"/>'
        '<rect class="kept" width="{share:.2f}%" height="10" y="4"/>'
        '<line class="rank" x1="{rank:.2f}%" x2="{rank:.2f}%" y1="0" y2="18"/></svg>'
    ).format(label=label, share=100 * unit.share, rank=rank)


def error_scale(units: Iterable[UnitRow]) -> LogScale:
    """One scale for the errors of all units."""
    return LogScale.around(e for u in units for e in (u.cut_error, u.error) if e is not None)


def error_dots(unit: UnitRow, scale: LogScale) -> Markup:
    """The unit's held-out error after plain cutting and after reconstruction, on the scale all units share."""
    grid = Markup("").join(
        Markup('<line class="grid" x1="{0:.2f}%" x2="{0:.2f}%" y1="0" y2="18"/>').format(100 * place)
        for place, _ in scale.ticks
    )
    if unit.cut_error is None or unit.error is None:
        return Markup('<svg class="line" aria-hidden="true">{}</svg>').format(grid)
    label = f"{unit.name}: error {unit.cut_error:.3g} after cutting, {unit.error:.3g} after reconstruction"
    cut, left = (100 * scale.place(e) for e in (unit.cut_error, unit.error))
    return Markup(
        '<svg class="line" role="img"><title>{label}</title>{grid}'
        '<line class="gain" x1="{left:.2f}%" x2="{cut:.2f}%" y1="9" y2="9"/>'
        '<circle class="cut" cx="{cut:.2f}%" cy="9" r="4"/><circle class="left" cx="{left:.2f}%" cy="9" r="5"/></svg>'
    ).format(label=label, grid=grid, cut=cut, left=left)


def error_axis(scale: LogScale) -> Markup:
    """The powers of ten, under the dots."""
    tick = Markup('<text x="{:.2f}%" y="12" text-anchor="{}">{}</text>')
    names = Markup("").join(tick.format(100 * place, anchor(place), name) for place, name in scale.ticks)
    return Markup('<svg class="line" aria-hidden="true">{}</svg>').format(names)
