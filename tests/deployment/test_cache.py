"""What was measured is found again, and a damaged file is only measured anew."""

import json
from dataclasses import replace

from deployment_pieces import PIECES

from ldrf.deployment.cache import open_cache


def test_a_second_run_finds_the_times_of_the_first(tmp_path, monkeypatch):
    monkeypatch.setenv("LDRF_CACHE", str(tmp_path))
    first = open_cache("torch", "1", 1, 1)
    first.put(PIECES[0], 0.5)
    first.write()
    again = open_cache("torch", "1", 1, 1)
    assert again.get(PIECES[0]) == 0.5 and again.get(replace(PIECES[0], inputs=9)) is None
    others = [("torch", "2", 1, 1), ("openvino", "1", 1, 1), ("torch", "1", 2, 1), ("torch", "1", 1, 2)]
    assert all(open_cache(*setting).get(PIECES[0]) is None for setting in others)
    assert json.loads(first.path.read_text())["setting"]["processor"]


def test_two_processes_keep_what_both_measured(tmp_path, monkeypatch):
    monkeypatch.setenv("LDRF_CACHE", str(tmp_path))
    one, other = open_cache("torch", "1", 1, 1), open_cache("torch", "1", 1, 1)
    one.put(PIECES[0], 1.0)
    one.write()
    other.put(PIECES[1], 2.0)
    other.write()
    both = open_cache("torch", "1", 1, 1)
    assert both.get(PIECES[0]) == 1.0 and both.get(PIECES[1]) == 2.0


def test_a_damaged_file_and_a_folder_that_cannot_be_written_cost_only_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LDRF_CACHE", str(tmp_path))
    cache = open_cache("torch", "1", 1, 1)
    cache.put(PIECES[0], 1.0)
    cache.write()
    cache.path.write_text('{"seconds": {"a": 1}}')
    assert open_cache("torch", "1", 1, 1).seconds == {}
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LDRF_CACHE", str(tmp_path / "file"))
    open_cache("torch", "1", 1, 1).write()
