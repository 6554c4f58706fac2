"""A file is the old one or the new one, whatever happens while it is written."""

import errno
import os
from pathlib import Path

import pytest

from ldrf.errors import LdrfError
from ldrf.files.writing import disk_errors_as_sentence, is_part_of, replacing, write_through, write_whole


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("data", [b"\x00new", "neu: \u00fc\n"])
def test_a_file_is_made_or_replaced(tmp_path, data):
    path = tmp_path / "a.bin"
    for _ in range(2):
        write_whole(path, data)
        assert path.read_bytes() == (data.encode() if isinstance(data, str) else data)
        path.write_bytes(b"old")
    assert names(tmp_path) == ["a.bin"]


def test_until_the_end_the_old_file_is_there(tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(b"old")
    with replacing(path) as beside:
        beside.write_bytes(b"new")
        assert path.read_bytes() == b"old"
        assert beside.parent == tmp_path and beside.suffix == ".safetensors"
    assert path.read_bytes() == b"new" and names(tmp_path) == ["a.safetensors"]


def test_two_writers_do_not_share_a_file(tmp_path):
    with replacing(tmp_path / "a") as one, replacing(tmp_path / "a") as other:
        assert one != other
        one.write_bytes(b"one")
        other.write_bytes(b"other")
    assert (tmp_path / "a").read_bytes() == b"one" and names(tmp_path) == ["a"]  # the outer one ends last


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize("problem", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")])
def test_an_interrupted_write_leaves_the_old_file_alone(tmp_path, monkeypatch, call, problem):
    def fail(*_):
        raise problem

    path = tmp_path / "a.json"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, call, fail)
    with pytest.raises(type(problem)):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old" and names(tmp_path) == ["a.json"]


def test_a_writer_that_fails_leaves_nothing(tmp_path):
    with pytest.raises(ValueError, match="mine"), replacing(tmp_path / "a.pt") as beside:
        beside.write_bytes(b"half")
        raise ValueError("mine")
    assert names(tmp_path) == []


def test_a_file_is_forced_to_disk_before_it_is_renamed(tmp_path, monkeypatch):
    order: list[str] = []
    replace, fsync = os.replace, os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (order.append("fsync"), fsync(handle))[1])
    monkeypatch.setattr(os, "replace", lambda *paths: (order.append("replace"), replace(*paths))[1])
    write_whole(tmp_path / "a", b"new")
    assert order == ["fsync", "replace", "fsync"]  # the file, its name, the folder that holds the name
    order.clear()
    write_through(tmp_path / "b", b"new")
    assert order == ["fsync"] and (tmp_path / "b").read_bytes() == b"new"


def test_what_a_killed_writer_leaves_is_known_by_its_name(tmp_path):
    for whole in ("settings.json", "learned.safetensors"):
        with replacing(tmp_path / whole) as beside:
            beside.write_bytes(b"")
        assert is_part_of(beside.name, whole)
        assert is_part_of(f".{whole}.part", whole)  # as earlier versions called it
        assert not is_part_of(whole, whole) and not is_part_of(f"my-{whole}.part", whole)
    assert not is_part_of(".learned-0123.part.safetensors", "settings.json")


def test_a_disk_error_is_one_sentence(tmp_path):
    sentence = r"^Cannot save it: No such file or directory\. Mend that\.$"
    with pytest.raises(LdrfError, match=sentence) as caught, disk_errors_as_sentence("save it", " Mend that."):
        write_whole(tmp_path / "nowhere" / "a", b"")
    assert isinstance(caught.value.__cause__, FileNotFoundError)
    with pytest.raises(ValueError, match="other"), disk_errors_as_sentence("save it"):
        raise ValueError("other")
