"""Settings of the C library: asked for where there is one, and left alone elsewhere."""

import ctypes

import pytest
import torch

from ldrf.runtime.allocator import EVERY, give_back, keep_large_blocks


class Libc:
    """Stands for the C library and notes what it is asked."""

    def __init__(self, asked: list) -> None:
        self.malloc_trim = lambda pad: asked.append(("trim", pad))
        self.mallopt = lambda option, value: asked.append((option, value))


@pytest.fixture
def asked(monkeypatch) -> list:
    calls: list = []
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Libc(calls))
    return calls


def test_memory_goes_back_at_every_fourth_chunk(asked):
    for chunk in range(2 * EVERY):
        give_back(chunk)
    give_back()
    assert asked == [("trim", 0)] * 3


def test_large_blocks_are_kept(asked):
    keep_large_blocks()
    assert asked == [(-4, 0), (-1, 2**31 - 1)]


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
