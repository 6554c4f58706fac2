"""A record is believed only if its seal fits, and what is forged still has to have the right form."""

import copy
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mutations import change_json
from results_on_disk import record

from ldrf.errors import LdrfError
from ldrf.files.record import RECORD, read_record, sealed

UNITS = {"conv1": (12, 6, 3), "conv2": (16, 9, 4)}
WHOLE = sealed({**record(UNITS), "attributes": {"attention.heads": 2}, "shapes": {"conv1.weight": [6, 3, 3, 3]}})


def written(folder, value):
    (folder / RECORD).write_text(json.dumps(value))
    return folder


def test_a_sealed_record_comes_back(tmp_path):
    assert read_record(written(tmp_path, WHOLE)) == WHOLE
    (tmp_path / RECORD).write_text(json.dumps(WHOLE, indent=4, sort_keys=True))  # another layout, the same contents
    assert read_record(tmp_path) == WHOLE


def test_a_record_from_before_there_were_seals_is_read(tmp_path):
    old = {**record(UNITS), "format": 1}
    assert read_record(written(tmp_path, old)) == old


def test_saving_again_seals_again():
    assert sealed(WHOLE) == WHOLE
    assert sealed({**WHOLE, "images": 7})["seal"] != WHOLE["seal"]
    assert sealed({**WHOLE, "format": 1})["format"] == 2


@given(st.integers(0, 2**32))
def test_any_change_breaks_the_seal(tmp_path_factory, seed):
    changed = copy.deepcopy(WHOLE)
    change_json(random.Random(seed), changed)
    folder = written(tmp_path_factory.mktemp("record"), changed)
    if json.dumps(changed, sort_keys=True) == json.dumps(WHOLE, sort_keys=True):
        assert read_record(folder) == WHOLE
    elif changed.get("format") == 1 and "seal" not in changed:
        pass
    else:
        with pytest.raises(LdrfError):
            read_record(folder)


@pytest.mark.parametrize("change", [{"widths": {"conv1": 5}}, {"attributes": {"attention.heads": 1}}, {"speedup": 3.5}])
@pytest.mark.parametrize("version", [1, 2])
def test_a_changed_width_or_figure_is_noticed(tmp_path, change, version):
    with pytest.raises(LdrfError, match="do not match its seal; save the result again"):
        read_record(written(tmp_path, {**WHOLE, **change, "format": version}))


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("class", [None, 3, ["Chain"]]),
        ("shapes", [{"a": 3}, {"a": [-1]}, {"a": [1.5]}, {"a": [True]}, {"a": ["3"]}, {"a": None}]),
        ("sha256", [None, 7, []]),
        ("widths", [[], 3, None]),
        ("attributes", [[], {"heads": 0}, {"heads": "2"}, {"heads": True}, {"heads": 1.0}, {"heads": [2]}]),
        ("metrics", [None, [], 1]),
        ("source", [None, [], "vgg9", {"model": 3}, {"model": "vgg9", "weights": ["a"]}]),
        ("inputs", [3, {}, {"args": {}, "kwargs": {}}, {"args": [3], "kwargs": {}}, {"args": [], "kwargs": []}]),
        ("inputs", [{"args": [{"shape": [3], "dtype": 7}], "kwargs": {}}, {"args": [{}], "kwargs": {}}]),
    ],
)
def test_a_forged_record_needs_the_right_form(tmp_path, field, values):
    for value in values:
        with pytest.raises(LdrfError, match=f"is damaged: (its '{field}' must be|it does not describe)"):
            read_record(written(tmp_path, sealed({**WHOLE, field: value})))


def test_an_endless_format_is_not_repeated(tmp_path):
    with pytest.raises(LdrfError, match="has format 'aaa") as told:
        read_record(written(tmp_path, {**WHOLE, "format": "a" * 100_000}))
    assert len(str(told.value)) < 1000
