"""Bars show nothing where nobody watches, lines tell of the stages where asked, and the clock adds up."""

import time

import pytest

from ldrf.runtime.progress import STAGES, Clock, progress, told, told_in_lines


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


def test_stages_are_told_in_lines_where_that_is_asked_for(capsys):
    Clock(shown=True)("trace")
    assert capsys.readouterr() == ("", "")
    with told_in_lines():
        clock = Clock(shown=True)
        for stage in (*STAGES, "other"):
            clock(stage)
        Clock()("trace")  # one that is not shown
    out, err = capsys.readouterr()
    assert out == "" and [line.partition(":")[0] for line in err.splitlines()] == list(STAGES)
    assert "left" in err.splitlines()[0] and "left" not in err.splitlines()[-1]


def test_the_time_left_is_told_from_the_usual_shares():
    assert sum(share for _, share in STAGES.values()) == pytest.approx(1)
    spent = {name: 10 * STAGES[name][1] for name in ("trace", "plan")}
    left = 10 - sum(spent.values())
    assert told("plan", spent) == f"plan: chose a width for every unit ({spent['plan']:.1f} s; about {left:.0f} s left)"


def test_a_terminal_shows_one_bar_for_the_whole_run_above_those_of_the_stages(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with told_in_lines():
        clock = Clock(shown=True)
        list(progress(range(2), "units"))
        for stage in STAGES:
            clock(stage)
    shown = capsys.readouterr().err
    assert shown.index("whole run") < shown.index("units") and "chose a width" not in shown
