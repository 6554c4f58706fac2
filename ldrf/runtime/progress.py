"""Progress bars that keep quiet when nobody watches, and a clock for the stages."""

import time
from collections.abc import Iterable, Sized
from typing import TypeVar

from tqdm import tqdm

from ldrf.runtime.processes import is_first

T = TypeVar("T")


def progress(items: Iterable[T], what: str, total: int | None = None) -> Iterable[T]:
    """Show a bar over ``items`` on a terminal, nothing elsewhere nor in other processes than the first."""
    total = len(items) if isinstance(items, Sized) else total
    return tqdm(items, desc=what, total=total, disable=None if is_first() else True, leave=False)


class Clock:
    """Seconds spent in each stage, in order."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def __call__(self, stage: str) -> None:
        now = time.perf_counter()
        self.seconds[stage], self._last = round(now - self._last, 3), now
