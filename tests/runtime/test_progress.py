"""Bars show nothing where nobody watches, and the clock adds up."""

import time

import pytest

from ldrf.runtime.progress import Clock, progress


@pytest.mark.parametrize("total", [None, 3])
def test_items_come_as_they_are_and_nothing_is_printed(capsys, total):
    assert list(progress(iter("abc"), "letters", total)) == ["a", "b", "c"]
    assert capsys.readouterr() == ("", "")


def test_the_total_is_that_of_the_items_where_they_have_one():
    assert progress([1, 2], "numbers").total == 2  # pyright: ignore[reportAttributeAccessIssue]
    assert progress(iter([1, 2]), "numbers", 5).total == 5  # pyright: ignore[reportAttributeAccessIssue]


def test_other_processes_than_the_first_show_no_bar(monkeypatch):
    monkeypatch.setattr("ldrf.runtime.progress.is_first", lambda: False)
    assert progress([1], "numbers").disable is True  # pyright: ignore[reportAttributeAccessIssue]


def test_stages_add_up_to_the_time_gone():
    start, clock = time.perf_counter(), Clock()
    time.sleep(0.02)
    clock("sleep")
    clock("nothing")
    assert list(clock.seconds) == ["sleep", "nothing"]
    assert clock.seconds["sleep"] >= 0.02 and sum(clock.seconds.values()) <= time.perf_counter() - start + 0.002
