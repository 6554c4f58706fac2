"""Networks are timed in turns, longer where they scatter, and not at all on a machine that is too busy."""

import itertools
import random
import time

import pytest
import torch

from ldrf.deployment.stopwatch import check_quiet, clock_for, time_in_turns, torch_threads
from ldrf.errors import LdrfError


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def takes(self, seconds, noise=lambda: 1.0):
        def call() -> None:
            self.now += seconds * noise()

        return call


def test_times_are_those_of_one_call():
    clock = Clock()
    timed = time_in_turns({"dense": clock.takes(0.02), "slim": clock.takes(0.005)}, 1, clock)
    assert timed.ratio() == pytest.approx(4) and timed.scatter < 1e-6
    assert check_quiet(timed) is timed


def test_a_call_that_is_now_and_then_slow_does_not_change_the_time():
    clock, noise = Clock(), itertools.cycle((1.0, 1.0, 1.0, 1.0, 6.0))
    timed = time_in_turns({"dense": clock.takes(0.02, lambda: next(noise)), "slim": clock.takes(0.01)}, 1, clock)
    assert timed.ratio() == pytest.approx(2, rel=0.01)


def test_a_machine_that_is_slow_for_a_while_is_timed_when_it_is_not():
    """Other work that lasts longer than a block slows both networks, but not alike."""
    clock = Clock()

    def busy(share):
        return lambda: 1.0 if clock.now % 4.0 > 2.0 else share

    calls = {"dense": clock.takes(0.02, busy(1.3)), "slim": clock.takes(0.01, busy(1.6))}
    assert time_in_turns(calls, 1, clock).ratio() == pytest.approx(2 * 1.3 / 1.6, rel=0.01)  # two seconds: all busy
    assert time_in_turns(calls, 1, clock, least=5.0).ratio() == pytest.approx(2, rel=0.01)


def test_a_busy_machine_is_told_with_its_scatter_and_what_to_do():
    clock, noise = Clock(), random.Random(0)
    calls = {"dense": clock.takes(0.2, lambda: noise.uniform(1.0, 8.0)), "slim": clock.takes(0.1)}
    timed = time_in_turns(calls, 1, clock, 1.0)
    with pytest.raises(LdrfError, match=r"too busy to time a network: .* scatter by \d+%. Stop other work"):
        check_quiet(timed)


def test_one_thread_is_timed_by_the_processors_own_time():
    clock = Clock()
    assert clock_for(1) is time.process_time and clock_for(2) is time.perf_counter
    assert clock_for(1, clock) is clock


def test_torch_has_its_threads_back():
    before = torch.get_num_threads()
    with torch_threads(2):
        assert torch.get_num_threads() == 2
    assert torch.get_num_threads() == before
