"""Networks on the clock: called in blocks that take turns, until the ratio of their times is known well enough."""

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from ldrf.errors import LdrfError

BLOCK = 0.05  # seconds of one network before it is another's turn, at least
ROUNDS = 7  # turns of each, at least
SHORT = 0.1  # seconds of a call that is too short to be timed alone
SURE = 0.008  # standard error of a ratio that is good enough
NOISY = 0.05  # and one that is not good for anything


@dataclass(frozen=True)
class Timed:
    """Seconds of one call of each network, and the standard error of their ratios."""

    seconds: dict[str, float]
    scatter: float

    def ratio(self, dense: str = "dense", slim: str = "slim") -> float:
        return self.seconds[dense] / self.seconds[slim]


def time_in_turns(
    calls: Mapping[str, Callable[[], Any]],
    threads: int,
    clock: Callable[[], float],
    seconds: float = 4.0,
    least: float = 0.0,
) -> Timed:
    """Seconds of each call, in the faster blocks of it, as other work on the machine only adds.

    More blocks are run while they scatter, for about ``seconds`` of each network at most and ``least`` at least.
    """
    clock = clock_for(threads, clock)
    blocks: dict[str, list[float]] = {name: [] for name in calls}
    with torch_threads(threads), torch.inference_mode():
        repeats = {name: _repeats(call, clock) for name, call in calls.items()}
        began = clock()
        while True:
            for name, call in calls.items():
                blocks[name].append(_block(call, repeats[name], clock))
            rounds, spent = len(next(iter(blocks.values()))), clock() - began
            scatter = _scatter(blocks)
            if rounds < ROUNDS or spent < least * len(calls):
                continue
            if scatter < SURE or spent > seconds * len(calls):
                return Timed({name: _lower_quartile(times) for name, times in blocks.items()}, scatter)


def clock_for(threads: int, clock: Callable[[], float] = time.perf_counter) -> Callable[[], float]:
    """Of one thread the processor's own time: the same on a quiet machine, and other work does not lengthen it."""
    return time.process_time if threads == 1 and clock is time.perf_counter else clock


def check_quiet(timed: Timed) -> Timed:
    """The same, unless the machine is too busy for it to mean anything."""
    if timed.scatter > NOISY:
        raise LdrfError(
            f"This machine is too busy to time a network: ratios of times scatter by {timed.scatter:.0%}. Stop other "
            "work on it, or deploy with fewer threads than it has cores."
        )
    return timed


@contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Within, torch computes with so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _repeats(call: Callable[[], Any], clock: Callable[[], float]) -> int:
    """Calls that fill a block, after two to warm up."""
    call()
    call()
    began = clock()
    call()
    took = clock() - began
    return max(4, math.ceil(BLOCK / max(took, 1e-6))) if took < SHORT else 1


def _block(call: Callable[[], Any], repeats: int, clock: Callable[[], float]) -> float:
    """Seconds of one of so many calls in a row. The first brings the weights back and does not count."""
    if repeats > 1:
        call()
    times = []
    for _ in range(repeats):
        began = clock()
        call()
        times.append(clock() - began)
    return _lower_quartile(times)


def _lower_quartile(times: list[float]) -> float:
    return sorted(times)[len(times) // 4]


def _scatter(blocks: dict[str, list[float]]) -> float:
    """Standard error of the medians of ratios to the first network (of the only network's own times), the largest."""
    first, *others = blocks.values()
    ratios = [[a / b for a, b in zip(first, other, strict=True)] for other in others] or [first]
    return max(_error_of_median(values) for values in ratios)


def _error_of_median(values: list[float]) -> float:
    if len(values) < 4:
        return math.inf
    low, middle, high = statistics.quantiles(values, n=4)
    return 1.2533 * (high - low) / 1.349 / middle / math.sqrt(len(values))
