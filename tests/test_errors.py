"""Errors of others are shown by their first line."""

import pytest

from ldrf.errors import first_line


@pytest.mark.parametrize(
    ("problem", "line"),
    [
        (RuntimeError("one\ntwo"), "one"),
        (RuntimeError("\n  one \n\ntwo\n"), "one"),
        (KeyError(), "KeyError"),
        (ValueError(" \n "), "ValueError"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
    ],
)
def test_the_first_line_or_the_type_where_there_is_none(problem, line):
    assert first_line(problem) == line
