"""Tables line up, and nothing in a cell steers a terminal."""

from hypothesis import given
from hypothesis import strategies as st

from ldrf.runtime.tables import printable, table


def test_numbers_go_to_the_right_and_words_to_the_left():
    assert table(("unit", "kept"), [("a", 7), ("long", 120)]).splitlines() == [
        "unit  kept",
        "----  ----",
        "a        7",
        "long   120",
    ]


@given(st.lists(st.text(st.characters()), min_size=1, max_size=4))
def test_a_row_is_a_line_whatever_its_cells_hold(cells):
    lines = table(["x"] * len(cells), [cells]).split("\n")
    assert len(lines) == 3 and all(line.isprintable() for line in lines)
    "".join(lines).encode()  # half a character is spelled out, too


@given(st.text(st.characters(categories=["L", "N", "P", "S"])))
def test_signs_stay_as_they_are(text):
    assert printable(text) == text


def test_what_may_stay_is_said():
    assert printable("a\nb\x1b[0m\u202e", keep="\n") == "a\nb\\x1b[0m\\u202e"
