"""Folders import downwards only: the table of docs/architecture.md, held against the real import graph."""

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "ldrf"

BASE = {"errors", "inputs", "config", "effort", "registry", "_version"}  # modules that every folder may import
STAGES = [
    "runtime",
    "files",
    "algebra",
    "tracing",
    "channels",
    "units",
    "deployment",
    "calibration",
    "planning",
    "reconstruction",
    "recomposition",
]
ENGINE = [*STAGES, "methods", "saving", "finetuning", "measuring"]
# Folder -> the folders that it may import, beside what all may.
MAY_IMPORT: dict[str, set[str]] = {
    "runtime": set(),
    "files": set(),
    "algebra": {"runtime"},
    "tracing": {"runtime"},
    "channels": {"runtime", "tracing"},
    "units": {"runtime", "algebra", "tracing", "channels"},
    "deployment": {"runtime", "files", "tracing", "units"},
    "calibration": {"runtime", "files", "algebra", "tracing", "channels", "units"},
    "planning": {"runtime", "algebra", "tracing", "channels", "units", "deployment", "calibration"},
    "reconstruction": {"runtime", "algebra", "tracing", "channels", "units", "calibration"},
    "recomposition": {"runtime", "files", "tracing", "units", "calibration", "reconstruction"},
    "methods": {"runtime", "algebra", "tracing", "units", "calibration", "planning", "reconstruction"},
    "saving": {*STAGES, "methods", "result", "events"},
    "finetuning": {*STAGES, "saving", "result", "events"},
    "measuring": {*STAGES, "saving", "result"},
    "events": {"runtime"},
    "result": {"runtime", "deployment", "planning", "reconstruction", "recomposition", "units"},
    "budget": {*STAGES, "saving", "measuring", "result", "run"},
    "sweeping": {*STAGES, "files", "saving", "result", "events", "run", "budget", "pipeline"},
    "run": {*STAGES, "methods", "saving", "result", "events"},
    "pipeline": {*STAGES, "methods", "saving", "result", "events", "run", "budget"},
    "inspection": set(STAGES),
    "data": {"calibration", "files"},
    "zoo": {*STAGES, "data", "finetuning"},
    "report": {"files", "runtime", "deployment", "result", "saving"},
    "shipping": {*ENGINE, "report", "result", "events", "run", "pipeline"},
    "integrations": {"events", "saving", "units"},
}
OUTER = {"cli", "reproduce", "__init__", "__main__"}  # these may import anything
FOREIGN = {"torchvision", "timm", "transformers", "matplotlib", "onnx", "tyro", "rich", "jinja2"}
EXTRAS = {"saving": {"onnx"}, "deployment": {"onnx"}}  # imported inside a function that needs them


def modules(folder: str) -> list[Path]:
    path = PACKAGE / folder
    return sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]


@cache
def imports(file: Path) -> set[str]:
    """Dotted names that a file imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


def folder_edges() -> dict[str, dict[str, set[str]]]:
    """Folder or root module -> what it imports of the package -> the files that do."""
    edges: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for file in PACKAGE.rglob("*.py"):
        own = file.relative_to(PACKAGE).with_suffix("").parts[0]
        for name in imports(file):
            parts = name.split(".")
            if parts[0] == "ldrf" and len(parts) > 1 and parts[1] != own:
                edges[own][parts[1]].add(str(file.relative_to(PACKAGE)))
    return edges


@pytest.mark.slow
@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_a_folder_imports_only_what_it_may(folder: str):
    allowed = MAY_IMPORT[folder] | BASE
    wrong = {other: files for other, files in folder_edges()[folder].items() if other not in allowed}
    assert not wrong


def test_every_folder_and_root_module_is_in_the_table():
    there = {p.stem for p in PACKAGE.iterdir() if p.suffix == ".py" or (p.is_dir() and any(p.glob("*.py")))}
    assert there == MAY_IMPORT.keys() | BASE | OUTER


def test_the_table_has_no_cycle():
    left = dict(MAY_IMPORT)
    while left:
        free = [folder for folder, others in left.items() if not others & left.keys()]
        assert free, f"these import each other: {sorted(left)}"
        for folder in free:
            del left[folder]


def test_base_modules_import_nothing_above_them():
    edges = folder_edges()
    assert all(edges[module].keys() <= BASE for module in BASE)


def test_the_engine_imports_no_extra():
    for folder in [*ENGINE, *BASE, "events", "result", "run", "pipeline", "inspection"]:
        for file in modules(folder):
            foreign = {name.split(".")[0] for name in imports(file)} & FOREIGN
            assert foreign <= EXTRAS.get(folder, set()), file


def test_few_modules_lie_flat():
    flat = [p.name for p in PACKAGE.glob("*.py") if not p.name.startswith("_")]
    assert len(flat) <= 12, flat


@pytest.mark.parametrize("folder", ENGINE)
def test_every_folder_says_what_it_is_for_and_what_it_imports(folder: str):
    doc = ast.get_docstring(ast.parse((PACKAGE / folder / "__init__.py").read_text()))
    assert doc and "Imports" in doc


@pytest.mark.parametrize("folder", ENGINE)
def test_every_module_of_the_engine_has_a_test_file_of_its_own_name(folder: str):
    missing = []
    for file in modules(folder):
        inside = file.relative_to(PACKAGE)
        if file.name != "__init__.py" and not (Path(__file__).parent / inside.parent / f"test_{file.name}").is_file():
            missing.append(str(inside))
    assert not missing


@pytest.mark.slow
def test_no_function_is_longer_than_60_lines():
    long = []
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno >= 60:
                long.append(f"{file.relative_to(PACKAGE)}:{node.name} {(node.end_lineno or 0) - node.lineno + 1}")
    assert not long


@pytest.mark.slow
def test_nothing_is_written_into_the_graph():
    writes = []
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
                for target in targets:
                    inner = target.value if isinstance(target, ast.Subscript) else target
                    if isinstance(inner, ast.Attribute) and inner.attr == "meta":
                        writes.append(f"{file.relative_to(PACKAGE)}:{node.lineno}")
    assert not writes
