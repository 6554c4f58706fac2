"""Benchmarks name parts of the library in strings and imports; every one of those names exists."""

import ast
import importlib
import pkgutil
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
FILES = sorted(BENCHMARKS.glob("*.py"))


def patched_names(code: str) -> list[str]:
    """The names that a file's calls of ``patch("name", ...)`` replace."""
    calls = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call) and node.args]
    patches = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "patch"]
    return [str(call.args[0].value) for call in patches if isinstance(call.args[0], ast.Constant)]


def imported_names(code: str) -> list[tuple[str, str]]:
    """Modules of the library and what a file imports from them."""
    imports = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.ImportFrom)]
    own = [(node.module or "", node.names) for node in imports if (node.module or "").split(".")[0] == "ldrf"]
    return [(module, alias.name) for module, names in own for alias in names]


PATCHED = [(file.name, name) for file in FILES for name in patched_names(file.read_text())]


def test_patches_are_seen():
    assert ("coverage.py", "ldrf.run.read_network") in PATCHED
    assert patched_names('patch("a.b", 1); patch(c, 2); other("d.e")') == ["a.b"]


@pytest.mark.parametrize(("file", "name"), PATCHED)
def test_what_a_benchmark_replaces_is_there(file, name):
    assert pkgutil.resolve_name(name) is not None, file


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_what_a_benchmark_imports_is_there(file):
    for module, name in imported_names(file.read_text()):
        holder = importlib.import_module(module)
        assert hasattr(holder, name) or importlib.import_module(f"{module}.{name}"), f"{file.name}: {module}.{name}"
