"""The version comes from tags."""

import importlib.util
from importlib.metadata import version
from pathlib import Path

import pytest

import ldrf

ROOT = Path(__file__).parents[1]


@pytest.fixture
def build(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("build_version", ROOT / "build_version.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    return module


@pytest.mark.parametrize(
    ("described", "wanted"),
    [("v0.2.0-0-gabc123", "0.2.0"), ("v0.2.0-3-gabc123", "0.2.1.dev3"), ("", "0.2.0.dev0"), ("nonsense", "0.2.0.dev0")],
)
def test_a_tag_is_the_version_and_commits_after_it_count(build, described, wanted):
    assert build.from_tag(described) == wanted


def test_outside_of_git_it_is_that_of_the_source_distribution(build, tmp_path):
    assert build.version() == "0.2.0.dev0"
    (tmp_path / "PKG-INFO").write_text("Metadata-Version: 2.4\nName: ldrf\nVersion: 1.2.3\n\nVersion: 9\n")
    assert build.version() == "1.2.3"


def test_the_package_says_its_own():
    assert ldrf.__version__ == version("ldrf")
