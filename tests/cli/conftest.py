"""A small network in a file, a result made from it, and a library that only notes its calls."""

import shutil
from pathlib import Path

import pytest
from fake_library import FakeCore
from networks import NET

from ldrf.cli import main


@pytest.fixture
def plugin(tmp_path, monkeypatch) -> str:
    """A file with a small network and data, named relative to the working folder."""
    (tmp_path / "plugin.py").write_text(NET)
    monkeypatch.chdir(tmp_path)
    return "plugin.py"


@pytest.fixture
def core(monkeypatch) -> FakeCore:
    return FakeCore(monkeypatch)


@pytest.fixture(scope="session")
def small_result(tmp_path_factory):
    """A folder with the plug-in and a result made from it, once for all tests."""
    folder = tmp_path_factory.mktemp("small_result")
    (folder / "plugin.py").write_text(NET)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        argv = ["prune", "plugin.py:net", "--data", "plugin.py:data", "--out", "slim", "--widths", "0=4", "2=5"]
        assert main([*argv, "--solver", "closed-form"]) == 0
    return folder


@pytest.fixture
def here(small_result, tmp_path, monkeypatch, capsys) -> Path:
    """The working folder, with ``plugin.py`` and the result ``slim``."""
    shutil.copytree(small_result, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    return tmp_path
