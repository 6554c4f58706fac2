"""How far a run has come: bars on a terminal, a line per stage in a log, and a clock for the stages."""

import sys
import time
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import TypeVar

from tqdm import tqdm

from ldrf.runtime.processes import is_first

T = TypeVar("T")

# The stages of a run: what each does, and its usual share of the time.
STAGES = {
    "trace": ("read the network and found what can be cut", 0.03),
    "plan": ("chose a width for every unit", 0.1),
    "reconstruct": ("solved the weights unit by unit", 0.3),
    "together": ("tuned all units together", 0.52),
    "recompose": ("put the slim network together and checked it", 0.05),
}
_lines: list[bool] = []  # not empty while stages are told in lines


def progress(items: Iterable[T], what: str, total: int | None = None) -> Iterable[T]:
    """Show a bar over ``items`` on a terminal, nothing elsewhere nor in other processes than the first."""
    total = len(items) if isinstance(items, Sized) else total
    return tqdm(items, desc=what, total=total, disable=None if is_first() else True, leave=False)


@contextmanager
def told_in_lines() -> Iterator[None]:
    """Within, a run that no terminal shows says a line on stderr after each of its stages."""
    _lines.append(True)
    try:
        yield
    finally:
        _lines.pop()


class Clock:
    """Seconds spent in each stage, in order; where ``shown``, a bar of the whole run, or a line after each stage."""

    def __init__(self, shown: bool = False) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()
        watched = shown and is_first()
        self._bar = tqdm(total=100, desc="whole run", unit="%", disable=None if watched else True, leave=False)
        self._in_lines = watched and bool(_lines) and not sys.stderr.isatty()

    def __call__(self, stage: str) -> None:
        now = time.perf_counter()
        self.seconds[stage], self._last = round(now - self._last, 3), now
        if stage not in STAGES:
            return
        self._bar.update(round(100 * STAGES[stage][1]))
        if stage == list(STAGES)[-1]:
            self._bar.close()
        if self._in_lines:
            print(told(stage, self.seconds), file=sys.stderr, flush=True)


def told(stage: str, seconds: dict[str, float]) -> str:
    """A line about a stage that is done, with a guess at the time that is left."""
    share = sum(STAGES[name][1] for name in seconds if name in STAGES)
    left = sum(seconds.values()) * (1 - share) / share
    rest = f"; about {left:.0f} s left" if stage != list(STAGES)[-1] else ""
    return f"{stage}: {STAGES[stage][0]} ({seconds[stage]:.1f} s{rest})"
