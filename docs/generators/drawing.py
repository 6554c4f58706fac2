"""A graph without cycles drawn in levels, as SVG that can be read on light and on dark pages."""

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

Graph = dict[str, set[str]]

BOX, GAP, ROW, HEIGHT, MARGIN = 118, 22, 84, 34, 24  # pixels: box and gap across, row and box down, page margin
SWEEPS = 24  # times that the order of each level is improved

STYLE = """
  .page { fill: #ffffff; stroke: #d0d7de }
  .arrow { fill: none; stroke: #8c959f; stroke-width: 1.3 }
  .tip { fill: #8c959f }
  text { font: 13px ui-sans-serif, system-ui, sans-serif; fill: #1f2328; text-anchor: middle }
  .note { font-size: 12px; fill: #59636e; text-anchor: start }
  rect.box { stroke-width: 1.3 }
  .foundation { fill: #eef1f4; stroke: #8c959f }
  .network { fill: #ddf4ff; stroke: #218bff }
  .stages { fill: #fff1e5; stroke: #e16f24 }
  .results { fill: #dafbe1; stroke: #2da44e }
  .entry { fill: #fbefff; stroke: #8250df }
  .tools { fill: #fff8c5; stroke: #bf8700 }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117; stroke: #3d444d }
    .arrow { stroke: #768390 }
    .tip { fill: #768390 }
    text { fill: #f0f6fc }
    .note { fill: #9198a1 }
    .foundation { fill: #212830 }
    .network { fill: #0c2d4f }
    .stages { fill: #4a2511 }
    .results { fill: #12351d }
    .entry { fill: #35205a }
    .tools { fill: #3d2f06 }
  }
"""


@dataclass(frozen=True)
class Spot:
    """The middle of a box, or of the bend of an arrow that passes a level."""

    x: float
    y: float


def draw(graph: Graph, group_of: dict[str, str], labels: dict[str, str]) -> str:
    """Every node as a box above all that it points to."""
    level = _levels(graph)
    chains = [_chain(name, other, level) for name in sorted(graph) for other in sorted(graph[name])]
    spots = _spots(_ordered(level, chains), chains)
    width = max(spot.x for spot in spots.values()) + BOX / 2 + MARGIN
    height = max(spot.y for spot in spots.values()) + HEIGHT / 2 + 2 * MARGIN + 12
    parts = [_arrow([spots[stop] for stop in chain]) for chain in chains]
    parts += [_box(spots[name], labels[name], group_of[name]) for name in sorted(graph)]
    parts.append(_legend(sorted(set(group_of.values()), key=list(dict.fromkeys(group_of.values())).index), height))
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    page = f'<rect class="page" x="0.5" y="0.5" width="{width - 1:.0f}" height="{height - 1:.0f}" rx="8"/>'
    title = "<title>Which folder of ldrf imports which</title>"
    return "\n".join(
        [f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', title, f"<style>{STYLE}</style>", page, *parts, "</svg>\n"]
    )


def _levels(graph: Graph) -> dict[str, int]:
    """Steps from each node to the bottom by the longest way; a node moves up where that makes its arrows shorter."""
    level: dict[str, int] = {}

    def visit(name: str) -> int:
        if name not in level:
            level[name] = 1 + max((visit(other) for other in sorted(graph[name])), default=-1)
        return level[name]

    for name in sorted(graph):
        visit(name)
    for name in sorted(graph, key=lambda name: -level[name]):
        above = [level[other] for other in graph if name in graph[other]]
        if len(above) > len(graph[name]):
            level[name] = min(above) - 1
    return level


def _chain(name: str, other: str, level: dict[str, int]) -> list[str]:
    """The stops of an arrow: its ends, and one bend on each level between."""
    between = range(level[name] - 1, level[other], -1)
    return [name, *(f"{name}>{other}@{number}" for number in between), other]


def _ordered(level: dict[str, int], chains: list[list[str]]) -> list[list[str]]:
    """Boxes and bends of each level from left to right, those of the top level first, with few crossings."""
    rows: list[list[str]] = [[] for _ in range(max(level.values()) + 1)]
    for name in sorted(level):
        rows[level[name]].append(name)
    for chain in chains:
        for step, stop in enumerate(chain[1:-1], 1):
            rows[level[chain[0]] - step].append(stop)
    rows.reverse()
    neighbours = _neighbours(chains)
    best = [list(row) for row in rows]
    for sweep in range(SWEEPS):
        order = rows if sweep % 2 else rows[::-1]
        for row in order:
            place = {stop: (index + 0.5) / len(line) for line in rows for index, stop in enumerate(line)}
            row.sort(key=lambda stop: (_mean([place[n] for n in neighbours.get(stop, [])], place[stop]), stop))
        if _crossings(rows, chains) < _crossings(best, chains):
            best = [list(row) for row in rows]
    return best


def _neighbours(chains: list[list[str]]) -> dict[str, list[str]]:
    """The boxes and bends that each is joined to."""
    neighbours: dict[str, list[str]] = defaultdict(list)
    for chain in chains:
        for one, other in pairwise(chain):
            neighbours[one].append(other)
            neighbours[other].append(one)
    return neighbours


def _mean(values: list[float], default: float) -> float:
    return sum(values) / len(values) if values else default


def _crossings(rows: list[list[str]], chains: list[list[str]]) -> int:
    """Pairs of arrow pieces between two levels that cross."""
    index = {stop: number for row in rows for number, stop in enumerate(row)}
    row_of = {stop: number for number, row in enumerate(rows) for stop in row}
    pieces = [(row_of[a], index[a], index[b]) for chain in chains for a, b in pairwise(chain)]
    return sum(
        one[0] == two[0] and (one[1] - two[1]) * (one[2] - two[2]) < 0
        for number, one in enumerate(pieces)
        for two in pieces[number + 1 :]
    )


def _spots(rows: list[list[str]], chains: list[list[str]]) -> dict[str, Spot]:
    """Where everything goes: as near below its neighbours as the order and the gaps between boxes allow."""
    neighbours = _neighbours(chains)
    across = {stop: index * (BOX + GAP) for row in rows for index, stop in enumerate(row)}
    for sweep in range(SWEEPS):
        for row in rows if sweep % 2 else rows[::-1]:
            wanted = [_mean([across[n] for n in neighbours.get(stop, [])], across[stop]) for stop in row]
            apart = [(_half(one) + _half(two)) + GAP for one, two in pairwise(row)]
            across |= dict(zip(row, _spread(wanted, apart), strict=True))
    left = min(x - _half(stop) for stop, x in across.items()) - MARGIN
    return {
        stop: Spot(across[stop] - left, MARGIN + HEIGHT / 2 + number * ROW)
        for number, row in enumerate(rows)
        for stop in row
    }


def _half(stop: str) -> float:
    """Half of the width of a box; bends have none."""
    return 0.0 if "@" in stop else BOX / 2


def _spread(wanted: list[float], apart: list[float]) -> list[float]:
    """The places nearest to those wanted that keep their order and distance: pushed right, pushed left, the mean."""
    right, left = list(wanted), list(wanted)
    for i, gap in enumerate(apart):
        right[i + 1] = max(right[i + 1], right[i] + gap)
    for i, gap in reversed(list(enumerate(apart))):
        left[i] = min(left[i], left[i + 1] - gap)
    return [(one + other) / 2 for one, other in zip(right, left, strict=True)]


def _arrow(stops: list[Spot]) -> str:
    """A smooth line from the bottom of the first box to the top of the last, with a tip."""
    first, *bends, last = stops
    points = [Spot(first.x, first.y + HEIGHT / 2), *bends, Spot(last.x, last.y - HEIGHT / 2 - 5)]
    path = f"M{points[0].x:.1f} {points[0].y:.1f}"
    for one, two in pairwise(points):
        middle = (one.y + two.y) / 2
        path += f" C{one.x:.1f} {middle:.1f} {two.x:.1f} {middle:.1f} {two.x:.1f} {two.y:.1f}"
    x, y = last.x, last.y - HEIGHT / 2
    return f'<path class="arrow" d="{path}"/><path class="tip" d="M{x:.1f} {y:.1f}l-4 -7h8z"/>'


def _box(spot: Spot, label: str, group: str) -> str:
    x, y = spot.x - BOX / 2, spot.y - HEIGHT / 2
    rect = f'<rect class="box {group}" x="{x:.1f}" y="{y:.1f}" width="{BOX}" height="{HEIGHT}" rx="7"/>'
    return f'{rect}<text x="{spot.x:.1f}" y="{spot.y + 4.5:.1f}">{label}</text>'


def _legend(groups: list[str], height: float) -> str:
    """What the colours mean."""
    parts = []
    for number, group in enumerate(groups):
        x, y = MARGIN + number * 112, height - MARGIN
        parts.append(f'<rect class="box {group}" x="{x}" y="{y - 10:.1f}" width="12" height="12" rx="3"/>')
        parts.append(f'<text class="note" x="{x + 18}" y="{y:.1f}">{group}</text>')
    return "".join(parts)
