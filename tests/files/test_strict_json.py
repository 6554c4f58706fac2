"""JSON is read as the standard library reads it, or refused where that would be a guess or without bounds."""

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldrf.files.strict_json import LIMIT, parse_json, plain, read_json

NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(st.characters(codec="utf-8"))
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


@given(VALUES)
def test_what_json_writes_is_read_as_it_was(value):
    assert parse_json(json.dumps(value).encode()) == value
    assert parse_json(json.dumps(value, ensure_ascii=False).encode()) == value


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b'{"a": 1, "b": 2, "a": 1}', "the key 'a' is there twice"),
        (b'[{"x": {"b": 1, "b": 2}}]', "the key 'b' is there twice"),
        (b"[NaN]", "NaN is no number"),
        (b"[-Infinity]", "-Infinity is no number"),
        (b"[1e999]", "too large"),
        (b"[9223372036854775808]", "too large"),
        (b"[" + b"9" * 10_000_000 + b"]", "too large"),
        (b"[" * 40 + b"]" * 40, "nested too deeply"),
        (b"[" * 1_000_000, "nested too deeply"),
        (b'{"a":' * 1_000_000, "nested too deeply"),
        (b'["\\ud800"]', "surrogates not allowed"),
        (b'{"\\udfff": 1}', "surrogates not allowed"),
        (b"\xff\xfe[]", "can't decode"),
        (b"", "Expecting value"),
        (b"[1] 2", "Extra data"),
    ],
)
def test_what_is_no_plain_json_is_refused(text, words):
    with pytest.raises(ValueError, match=words):
        parse_json(text)


def test_a_file_is_read_up_to_a_limit_and_only_if_it_is_one(tmp_path):
    path = tmp_path / "a.json"
    with path.open("wb") as file:
        file.truncate(2**40)  # takes no room on disk
    with pytest.raises(ValueError, match=f"larger than {LIMIT:,} bytes"):
        read_json(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ValueError, match="not a plain file"):
        read_json(path)
    with pytest.raises(ValueError, match="not a plain file"):
        read_json(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "none.json")


def test_what_is_written_can_be_read():
    value = {"a": (1, 2.5), "b": float("nan"), 3: [float("inf"), {"c": None}]}
    assert plain(value) == {"a": [1, 2.5], "b": None, "3": [None, {"c": None}]}
