"""The commit is that of the file's own repository, and none where git does not know the file."""

import subprocess
from pathlib import Path

import pytest

from ldrf.reproduce.commit import code_commit


def git(folder: Path, *command: str) -> str:
    named = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    done = subprocess.run(["git", "-C", str(folder), *named, *command], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "code.py"
    path.write_text("one = 1\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "code.py")
    git(tmp_path, "commit", "-qm", "one")
    git(tmp_path, "tag", "v1.0")
    return path


def test_a_file_of_a_clone_has_its_commit(file: Path):
    assert code_commit(file) == git(file.parent, "rev-parse", "--short", "HEAD")


def test_changes_since_are_told(file: Path):
    file.write_text("one = 2\n")
    assert code_commit(file) == git(file.parent, "rev-parse", "--short", "HEAD") + "-dirty"


def test_a_package_within_another_repository_has_none(file: Path):
    other = file.with_name("installed.py")
    other.write_text("")
    assert code_commit(other) is None


def test_without_a_repository_or_git_there_is_none(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert code_commit(tmp_path / "nowhere" / "code.py") is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert code_commit(file) is None
