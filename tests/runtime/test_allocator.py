"""Settings of the C library: asked for where there is one, and left alone elsewhere."""

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ldrf.runtime.allocator import EVERY, HUGE_PAGE, HUGE_PAGES, give_back, keep_large_blocks

HUGE = Path("/sys/kernel/mm/transparent_hugepage/enabled")


class Function:
    """Stands for a function of the C library, notes what it is asked, and takes the types of its arguments."""

    def __init__(self, name: str, asked: list, gives=lambda *args: None) -> None:
        self.name, self.asked, self.gives = name, asked, gives
        self.argtypes = self.restype = None

    def __call__(self, *args):
        if self.name:
            self.asked.append((self.name, *args))
        return self.gives(*args)


class Libc:
    """Stands for the C library; its heap starts at ``start`` and grows to ``end`` if it may."""

    def __init__(self, asked: list, start: int, end: int) -> None:
        self.tops = [start, end]
        self.malloc_trim, self.mallopt = Function("trim", asked), Function("mallopt", asked)
        self.malloc, self.free = Function("", asked), Function("", asked)
        self.sbrk = Function("", asked, lambda by: self.tops.pop(0))
        self.madvise = Function("madvise", asked)


def stand_in(monkeypatch, end: int) -> list:
    calls: list = []
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Libc(calls, HUGE_PAGE + 5, end))
    return calls


def test_memory_goes_back_at_every_fourth_chunk(monkeypatch):
    asked = stand_in(monkeypatch, end=HUGE_PAGE + 5)  # large blocks lie elsewhere: the heap does not grow
    for chunk in range(2 * EVERY):
        give_back(chunk)
    give_back()
    assert asked == [("trim", 0)] * 3


def test_large_blocks_are_kept_in_huge_pages(monkeypatch):
    asked = stand_in(monkeypatch, end=10 * HUGE_PAGE)
    keep_large_blocks()
    give_back()
    settings, there = [("mallopt", -4, 0), ("mallopt", -1, -1)], ("madvise", 2 * HUGE_PAGE, 8 * HUGE_PAGE, HUGE_PAGES)
    assert asked == [*settings, there, ("trim", 0), there]


@pytest.mark.skipif(not HUGE.exists() or "[never]" in HUGE.read_text(), reason="no huge pages on this system")
def test_large_tensors_lie_in_huge_pages_of_a_real_process():
    script = """
import torch
from ldrf.runtime.allocator import give_back, keep_large_blocks
keep_large_blocks()
give_back()
kept = torch.ones(2**26)
print(sum(int(line.split()[1]) for line in open("/proc/self/smaps") if line.startswith("AnonHugePages")))
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(run.stdout) >= 2**26 * 4 / 1024 / 2  # KiB: half of the tensor at the least


@pytest.mark.parametrize("problem", [OSError("no such library"), AttributeError("no such function")])
def test_another_system_goes_without(monkeypatch, problem):
    def missing(name):
        raise problem

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert give_back() is None and keep_large_blocks() is None


def test_tensors_are_what_they_were():
    x = torch.arange(1_000_000.0)
    give_back()
    assert torch.equal(x, torch.arange(1_000_000.0))
