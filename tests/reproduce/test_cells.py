"""Cells are kept under a hash of their settings, and a run goes on where it stopped."""

import json
from pathlib import Path

import pytest

from ldrf.errors import LdrfError
from ldrf.reproduce.cells import Cell, Shelf, run_cells, spell
from ldrf.reproduce.commit import code_commit

A = Cell("a", "prune", {"method": "ldrf", "seed": 0})
B = Cell("b", "tune", {"iterations": 5}, A)
C = Cell("c", "dense")


@pytest.fixture
def shelf(tmp_path) -> Shelf:
    return Shelf(tmp_path / "work", "subject")


class Counted:
    """Measures a cell as its name, and notes which were asked for."""

    def __init__(self, fail: str = "", error: BaseException | None = None) -> None:
        self.asked: list[str] = []
        self.fail, self.error = fail, error

    def __call__(self, cell: Cell) -> dict:
        self.asked.append(cell.name)
        if cell.name == self.fail and self.error:
            raise self.error
        return {"top1": 90.0, "told": cell.name}


def test_the_key_follows_all_but_the_name():
    same = Cell("another name", "prune", {"seed": 0, "method": "ldrf"})
    assert same.key("s") == A.key("s")
    others = [
        A.key("other network"),
        Cell("a", "time", A.settings).key("s"),
        Cell("a", "prune", {"method": "ldrf", "seed": 1}).key("s"),
        Cell("a", "prune", A.settings, C).key("s"),
        Cell("a", "prune", A.settings, Cell("c", "dense", {"test_images": 3})).key("s"),
    ]
    assert len({A.key("s"), *others}) == 6


def test_a_source_comes_before_what_starts_from_it(shelf):
    measure = Counted()
    run = run_cells([C, B, A], shelf, measure)
    assert measure.asked == ["c", "a", "b"]
    assert list(run.done) == ["c", "b", "a"] and not run.left and not run.refused
    assert run.done["b"]["outcome"]["told"] == "b" and run.done["b"]["source"] == "a"
    assert run.done["a"]["settings"] == A.settings and "torch" in run.done["a"]["versions"]
    assert run.done["a"]["commit"] == code_commit()


def test_a_stopped_run_goes_on_where_it_stopped(shelf):
    with pytest.raises(KeyboardInterrupt):
        run_cells([A, B, C], shelf, Counted("b", KeyboardInterrupt()))
    measure = Counted()
    run = run_cells([A, B, C], shelf, measure)
    assert measure.asked == ["b", "c"] and set(run.done) == {"a", "b", "c"}
    assert {path.stem for path in shelf.folder.iterdir()} == {cell.key(shelf.subject) for cell in (A, B, C)}
    again = Counted()
    assert run_cells([A, B, C], shelf, again).done == run.done and not again.asked


def test_records_made_elsewhere_count_for_the_same_cell_alone(shelf, tmp_path):
    there = run_cells([A, C], shelf, Counted()).done
    here = Shelf(tmp_path / "here", "subject", {record["key"]: record for record in there.values()})
    other = Shelf(tmp_path / "here", "another network", here.earlier)
    measure = Counted()
    assert run_cells([A, B, C], here, measure).done.keys() == {"a", "b", "c"} and measure.asked == ["b"]
    assert run_cells([A], other, measure).done["a"]["key"] != there["a"]["key"] and measure.asked == ["b", "a"]


def test_finished_cells_are_measured_again_where_that_is_asked_for(shelf):
    run_cells([A, B, C], shelf, Counted())
    left = shelf.place(B) / "last.pt"
    left.parent.mkdir()
    left.touch()
    measure = Counted()
    run_cells([A, B, C], shelf, measure, glob="b", again=True)
    assert measure.asked == ["b"] and not left.exists()  # its source did not change
    run_cells([A, B, C], shelf, measure, glob="a", again=True)
    assert measure.asked == ["b", "a", "b"]  # what starts from it is done again, too


def test_what_was_to_be_measured_again_and_was_not_is_still_there(shelf):
    before = run_cells([A, B, C], shelf, Counted()).done
    assert run_cells([A, B, C], shelf, Counted(), again=True, minutes=0).done == before
    with pytest.raises(KeyboardInterrupt):
        run_cells([C, A, B], shelf, Counted("a", KeyboardInterrupt()), again=True)
    assert run_cells([A, B, C], shelf, Counted(), minutes=0).left == ("a", "b")  # b started from what a was


def test_a_damaged_record_is_made_again(shelf):
    run_cells([A], shelf, Counted())
    path = next(shelf.folder.glob("*.json"))
    for text in ("{half", "[]", json.dumps({"name": "a"})):
        path.write_text(text)
        measure = Counted()
        run_cells([A], shelf, measure)
        assert measure.asked == ["a"] and json.loads(path.read_text())["outcome"]


def test_no_cell_starts_after_the_minutes(shelf):
    run = run_cells([A, B, C], shelf, Counted(), minutes=0)
    assert run.left == ("a", "b", "c") and not run.done and not Path(shelf.folder).exists()


def test_a_refused_cell_stops_only_those_that_need_it(shelf):
    run = run_cells([A, B, C], shelf, Counted("a", LdrfError("No BatchNorm here.")))
    assert list(run.done) == ["c"] and not run.left
    assert run.refused == {"a": "refused (No BatchNorm here.)", "b": "needs a, which was refused"}


def test_a_bug_is_not_hidden(shelf):
    with pytest.raises(ZeroDivisionError):
        run_cells([A, C], shelf, Counted("a", ZeroDivisionError()))


def test_a_glob_takes_the_sources_along(shelf):
    measure = Counted()
    run = run_cells([C, A, B], shelf, measure, glob="b*")
    assert measure.asked == ["a", "b"] and run.left == ("c",)
    with pytest.raises(LdrfError, match="No cell matches 'x': the cells are c, a, b"):
        run_cells([C, A, B], shelf, measure, glob="x")


def test_what_is_left_is_told(shelf, capsys):
    run_cells([A, C], shelf, Counted())
    lines = capsys.readouterr()
    assert "a: top-1 90.00 % in 0 s, about 0 s left" in lines.out + lines.err


@pytest.mark.parametrize(("seconds", "words"), [(40, "40 s"), (700, "12 min"), (11_100, "3 h 05 min")])
def test_times_are_spelled(seconds, words):
    assert spell(seconds) == words


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "null", "[" * 100_000, '{"outcome": {}}', '{"outcome": 3, "outcome": 4}'),
        '{"outcome": {}, "settings": [], "kind": "dense", "seconds": 1, "versions": {}}',
        '{"outcome": {}, "settings": {}, "kind": "dense", "seconds": "1", "versions": {}}',
        '{"outcome": {"top1": NaN}, "settings": {}, "kind": "dense", "seconds": 1, "versions": {}}',
    ],
)
def test_a_file_of_another_form_counts_as_none(shelf, text):
    cell = Cell("a", "dense")
    shelf.keep(cell, {}, 1.0)
    assert shelf.find(cell) is not None
    next(shelf.folder.glob("*.json")).write_text(text)
    assert shelf.find(cell) is None
