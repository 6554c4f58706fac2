"""Tables filled by the clock: pieces in turns, more rounds where they scatter, nothing that was measured before."""

import statistics
from collections.abc import Sequence

from ldrf.deployment.cache import TimeCache
from ldrf.deployment.geometry import Piece
from ldrf.deployment.runtime import Runtime
from ldrf.deployment.tables import Table, Wanted, elements
from ldrf.errors import LdrfError, first_line
from ldrf.runtime.progress import progress

ROUNDS = 12  # turns of every piece
MORE = 2  # times that many again, at most, for pieces whose times scatter
SCATTER = 0.03  # standard error from which they do
TOGETHER = 40  # pieces that take turns
ROOM = 2**25  # and the numbers that all of these hold, at most


def measure_tables(
    wanted: Sequence[Wanted], runtime: Runtime, batch: int, threads: int, cache: TimeCache
) -> list[Table]:
    """A table for each wanted layer."""
    points = [[Piece(w.geometry, i, o, batch) for i, o in w.points()] for w in wanted]
    missing = list(dict.fromkeys(p for pieces in points for p in pieces if cache.get(p) is None))
    for together in progress(_grouped(missing), "time layers"):
        for piece, seconds in zip(together, _timed(together, runtime, threads), strict=True):
            cache.put(piece, seconds)
        cache.write()
    return [
        Table(w, {(p.inputs, p.outputs): cache.get(p) or 0.0 for p in pieces})
        for w, pieces in zip(wanted, points, strict=True)
    ]


def _grouped(pieces: Sequence[Piece]) -> list[list[Piece]]:
    """Pieces in groups of a size that fits into memory, neighbours far apart so that a busy moment hits none alone."""
    groups: list[list[Piece]] = []
    held = 0
    for piece in sorted(pieces, key=elements):
        if not groups or len(groups[-1]) == TOGETHER or held + elements(piece) > ROOM:
            groups.append([])
            held = 0
        groups[-1].append(piece)
        held += elements(piece)
    return groups


def _timed(pieces: list[Piece], runtime: Runtime, threads: int) -> list[float]:
    """Seconds of each piece: what it takes in its better turns."""
    times: list[list[float]] = [[] for _ in pieces]
    again = list(range(len(pieces)))
    for _ in range(1 + MORE):
        try:
            new = runtime.time_pieces([pieces[k] for k in again], threads, ROUNDS)
        except LdrfError:
            raise
        except Exception as problem:
            raise LdrfError(
                f"A layer cannot be timed by itself ({pieces[0].geometry.key}): {first_line(problem)}"
            ) from (problem)
        for k, seconds in zip(again, new, strict=True):
            times[k] += seconds
        again = [k for k in again if _scatters(times[k])]
        if not again:
            break
    return [_typical(seconds) for seconds in times]


def _typical(times: Sequence[float]) -> float:
    """The mean of the second quarter: other work on the machine only adds, and the very fastest may be a fluke.

    A mean is finer than a clock that counts microseconds.
    """
    ordered = sorted(times)
    quarter = len(ordered) // 4
    return max(statistics.fmean(ordered[quarter : max(2 * quarter, quarter + 1)]), 1e-9)


def _scatters(times: Sequence[float]) -> bool:
    low, middle, _ = statistics.quantiles(times, n=4)
    return (middle - low) / 0.674 > SCATTER * max(middle, 1e-9) * len(times) ** 0.5
