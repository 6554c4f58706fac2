"""A folder is written to only where it is free or ldrf's own, and one result takes another's place in one piece."""

import os

import pytest

from ldrf.errors import LdrfError
from ldrf.files.result_folders import (
    JOURNAL,
    LEARNED,
    LOCK,
    PAGE,
    RECORD,
    SETTINGS,
    WEIGHTS,
    check_place,
    new_folder,
    swap,
    unfinished,
)


def filled(folder, names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{name} of {folder.name}")
    return folder


def listed(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    "names",
    [
        [],
        [RECORD, "notes.txt"],
        [f"{JOURNAL}/{LOCK}", f"{JOURNAL}/{SETTINGS}"],
        [f"{JOURNAL}/.{SETTINGS}.part", f"{JOURNAL}/.learned-0f1e2d3c.part.safetensors"],
        [f"{JOURNAL}/{LEARNED}", "notes.txt"],
    ],
)
def test_free_and_own_folders_may_be_written_to(tmp_path, names):
    check_place(filled(tmp_path, names))
    check_place(tmp_path / "a" / "new" / "one")
    assert listed(tmp_path) == sorted(names)
    assert unfinished(tmp_path) == (f"{JOURNAL}/{LEARNED}" in names)


@pytest.mark.parametrize(
    "names", [["notes.txt"], [f"{JOURNAL}/diary.txt"], [RECORD, f"{JOURNAL}/diary.txt"], [JOURNAL]]
)
def test_folders_of_something_else_are_refused(tmp_path, names):
    with pytest.raises(LdrfError, match="it holds something else than an ldrf result; name an empty folder"):
        check_place(filled(tmp_path, names))
    assert listed(tmp_path) == sorted(names)


def test_a_file_is_refused(tmp_path):
    filled(tmp_path, ["file"])
    with pytest.raises(LdrfError, match="it is a file, not a folder"):
        check_place(tmp_path / "file")


def test_a_new_folder_takes_its_place_with_files_of_others(tmp_path):
    folder = filled(tmp_path / "out", [RECORD, WEIGHTS, PAGE, "notes.txt", f"{JOURNAL}/{LEARNED}"])
    beside = filled(new_folder(folder), [RECORD])
    swap(beside, folder)
    assert listed(folder) == sorted([RECORD, "notes.txt"]) and os.listdir(tmp_path) == ["out"]
    assert (folder / RECORD).read_text() == f"{RECORD} of {beside.name}"


def test_without_an_old_folder_the_new_one_is_renamed(tmp_path):
    folder = tmp_path / "in" / "out"
    swap(filled(new_folder(folder), [RECORD]), folder)
    assert listed(folder) == [RECORD] and os.listdir(folder.parent) == ["out"]


@pytest.mark.parametrize("stage", ["before the renames", "between them", "after them"])
def test_what_a_killed_swap_left_is_put_right(tmp_path, stage):
    folder, old, new = (tmp_path / name for name in ("out", ".out-old-abcdefgh", ".out-new-abcdefgh"))
    filled(new if stage != "after them" else folder, [RECORD])
    filled(folder if stage == "before the renames" else old / "was", [RECORD, "notes.txt"])
    filled(tmp_path / ".out-old-notes", ["of another"])  # a name that ldrf does not give
    check_place(folder)
    assert sorted(os.listdir(tmp_path)) == [".out-old-notes", "out"]
    assert listed(folder) == sorted([RECORD, "notes.txt"])
    assert (folder / RECORD).read_text().endswith("of out" if stage != "between them" else "of was")
