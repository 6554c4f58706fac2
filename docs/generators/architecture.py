"""Which folder of the package imports which: a table and a picture, read from the source."""

import ast
from collections import defaultdict
from pathlib import Path

from generators.drawing import draw

PACKAGE = Path(__file__).parents[2] / "ldrf"
# Modules beside the folders that every folder may import; they are not drawn.
COMMON = ("errors", "config", "effort", "registry", "inputs", "events", "_version", "__init__", "__main__")
GROUPS = {
    "foundation": ("runtime", "files", "algebra"),
    "network": ("tracing", "channels", "units", "deployment", "calibration"),
    "stages": ("planning", "reconstruction", "recomposition", "methods"),
    "results": ("result", "saving", "measuring", "finetuning"),
    "entry": ("pipeline", "run", "budget", "sweeping", "inspection", "shipping"),
    "tools": ("cli", "data", "zoo", "report", "reproduce", "integrations"),
}

Graph = dict[str, set[str]]


def import_graph() -> Graph:
    """Folders and single modules of the package, and what each imports of the others, inside of functions too."""
    graph: Graph = defaultdict(set)
    public = _public_names()
    for file in sorted(PACKAGE.rglob("*.py")):
        place = file.relative_to(PACKAGE)
        name = place.parts[0].removesuffix(".py")
        graph[name] |= {other for other in _imported(ast.parse(file.read_text()), public) if other != name}
    drawn = graph.keys() - set(COMMON)
    return {name: graph[name] & drawn for name in sorted(drawn)}


def _public_names() -> dict[str, str]:
    """The folder or module that each public name of the package comes from."""
    lines = ast.walk(ast.parse((PACKAGE / "__init__.py").read_text()))
    imports = [line for line in lines if isinstance(line, ast.ImportFrom) and str(line.module).startswith("ldrf.")]
    return {alias.name: str(line.module) for line in imports for alias in line.names}


def _imported(tree: ast.AST, public: dict[str, str]) -> set[str]:
    """Folders and modules of ldrf that a file imports; ``ldrf.prune`` counts as an import of its home."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "ldrf":
            names.add(public.get(node.attr, "ldrf"))
    parts = [name.split(".") for name in names]
    return {part[1] for part in parts if part[0] == "ldrf" and len(part) > 1}


def without_shortcuts(graph: Graph) -> Graph:
    """The graph without arrows that a longer way stands for, so that a picture of it can be read."""
    behind = {name: _reachable(graph, name) for name in graph}
    return {
        name: {other for other in others if not any(other in behind[middle] for middle in others - {other})}
        for name, others in graph.items()
    }


def _reachable(graph: Graph, start: str) -> set[str]:
    reached: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += graph[name]
    return reached


def table() -> str:
    """A row for every folder: what it is for, and what it imports."""
    graph = import_graph()
    rows = ["| folder | what it is for | imports |", "|---|---|---|"]
    for group in GROUPS.values():
        for name in group:
            imports = ", ".join(f"`{other}`" for other in sorted(graph[name])) or "none"
            rows.append(f"| {_link(name)} | {purpose(name)} | {imports} |")
    missing = graph.keys() - {name for group in GROUPS.values() for name in group}
    if missing:
        raise ValueError(f"Folders that are in no group of docs/generators/architecture.py: {sorted(missing)}.")
    return "\n".join(rows)


def _link(name: str) -> str:
    return f"`ldrf/{name}/`" if (PACKAGE / name).is_dir() else f"`ldrf/{name}.py`"


def purpose(name: str) -> str:
    """The first sentence of the docstring of a folder or module."""
    file = PACKAGE / name / "__init__.py" if (PACKAGE / name).is_dir() else PACKAGE / f"{name}.py"
    text = ast.get_docstring(ast.parse(file.read_text())) or ""
    return (
        text.partition("\n\n")[0]
        .replace("\n", " ")
        .partition(". ")[0]
        .rstrip(".")
        .replace("``", "`")
        .replace(":mod:", "")
    )


def picture() -> str:
    """The import graph as SVG."""
    graph = without_shortcuts(import_graph())
    group_of = {name: group for group, members in GROUPS.items() for name in members}
    labels = {name: name if (PACKAGE / name).is_dir() else f"{name}.py" for name in graph}
    return draw(graph, group_of, labels)
