"""Signatures and docstrings of all public names, as Markdown."""

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Callable
from typing import Any, Literal, get_args, get_origin

from docstring_parser import parse_from_object

import ldrf
from ldrf.data.sources import open_data
from ldrf.measuring.accuracy import measure_accuracy
from ldrf.tracing.counting import count_macs

WIDTH = 100  # characters of a signature on one line
GROUPS = {
    "Prune": (
        "prune",
        "sweep",
        "inspect",
        "analyze",
        "find_energy",
        "prune_layer",
        "mirrored",
        "PruneConfig",
        "Deployment",
    ),
    "Save, load, deploy": ("save", "load", "load_result", "export", "quantize"),
    "Ship": ("ship", "ShipConfig"),
    "Fine-tune": ("finetune", "FinetuneConfig"),
    "Teach it an operator": ("register_operator", "Operator"),
    "What comes back": (
        "PruneResult",
        "UnitReport",
        "Point",
        "Tried",
        "Skipped",
        "FinetuneResult",
        "Inspection",
        "Latency",
        "Analysis",
        "LayerRank",
        "EnergySearch",
        "SingleLayer",
        "Exported",
        "Quantized",
        "Shipped",
        "ShippedRow",
    ),
    "Errors": ("LdrfError", "LdrfWarning"),
}


def names() -> str:
    """All public names, in groups."""
    missing = set(ldrf.__all__) - {"__version__"} - {name for group in GROUPS.values() for name in group}
    if missing:
        raise ValueError(f"Public names that are in no group of docs/generators/api.py: {sorted(missing)}.")
    sections = []
    for title, group in GROUPS.items():
        sections += [f"## {title}", *(_entry(f"ldrf.{name}", getattr(ldrf, name)) for name in group)]
    return "\n\n".join(sections)


def tools() -> str:
    """Functions that lie deeper, which examples use."""
    return "\n\n".join(_entry(f"{f.__module__}.{f.__name__}", f) for f in (open_data, measure_accuracy, count_macs))


def _entry(name: str, thing: Any) -> str:
    """Heading, signature, docstring; the fields and methods of a class."""
    parts = [f"### {name}"]
    if inspect.isfunction(thing):
        parts.append(f"```python\ndef {_signature(thing, thing.__name__)}: ...\n```")
    parts.append(_prose(inspect.getdoc(thing) or ""))
    if inspect.isclass(thing):
        parts += _fields(thing)
        parts.append("\n".join(_method(method) for method in vars(thing).values() if _is_shown(method)))
    return "\n\n".join(part for part in parts if part)


def _is_shown(member: Any) -> bool:
    function = _function(member)
    return inspect.isfunction(function) and not function.__name__.startswith("_")


def _function(member: Any) -> Any:
    return member.fget if isinstance(member, property) else member


def _method(member: Any) -> str:
    """One line about a method or property."""
    function = _function(member)
    call = function.__name__ if isinstance(member, property) else _signature(function, function.__name__)
    line = f"- `{call.replace('(self, ', '(').replace('(self)', '()')}`"
    doc = " ".join(_prose(inspect.getdoc(function) or "").split())
    return f"{line}: {doc}" if doc else line


def _fields(kind: type) -> list[str]:
    """The fields of a dataclass: a table where they are documented one by one, else a list."""
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    texts = {param.arg_name: _prose(param.description or "") for param in parse_from_object(kind).params}
    types = _types(kind)
    if not any(texts.get(field.name) for field in fields):
        return ["Fields: " + ", ".join(f"`{field.name}: {types[field.name]}`" for field in fields)] if fields else []
    rows = ["| field | type | default | |", "|---|---|---|---|"]
    for field in fields:
        what = " ".join(texts.get(field.name, "").split())
        default = "" if field.default is dataclasses.MISSING else f"`{field.default!r}`"
        rows.append(_escaped(f"| `{field.name}` | `{types[field.name]}` | {default} | {what} |"))
    return ["\n".join(rows)]


def _types(kind: type) -> dict[str, str]:
    """The types of a class's fields as they are written; names of choices are replaced by the choices."""
    tree = _tree(kind)
    assert isinstance(tree, ast.ClassDef)
    lines = [line for line in tree.body if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)]
    written = {ast.unparse(line.target): ast.unparse(line.annotation) for line in lines}
    choices = {
        name: " | ".join(map(repr, get_args(alias)))
        for name, alias in vars(inspect.getmodule(kind)).items()
        if get_origin(alias) is Literal
    }
    return {name: " | ".join(choices.get(part, part) for part in text.split(" | ")) for name, text in written.items()}


def _escaped(row: str) -> str:
    """Bars inside code would end a cell."""
    return re.sub(r"`[^`]*`", lambda code: code[0].replace("|", r"\|"), row)


def _tree(thing: Any) -> ast.AST:
    return ast.parse(textwrap.dedent(inspect.getsource(thing))).body[0]


def _signature(function: Callable[..., Any], name: str) -> str:
    """The signature as it is written, on one line or with one argument per line."""
    tree = _tree(function)
    assert isinstance(tree, ast.FunctionDef)
    returns = f" -> {ast.unparse(tree.returns)}" if tree.returns else ""
    line = f"{name}({ast.unparse(tree.args)}){returns}"
    if len(line) <= WIDTH:
        return line
    listed = "".join(f"    {argument},\n" for argument in _arguments(tree.args))
    return f"{name}(\n{listed}){returns}"


def _arguments(arguments: ast.arguments) -> list[str]:
    """Each argument with its annotation and default."""
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(plain) - len(arguments.defaults)) + list(arguments.defaults)
    texts = [_argument(a, d) for a, d in zip(plain, defaults, strict=True)]
    if arguments.vararg:
        texts.append(f"*{ast.unparse(arguments.vararg)}")
    elif arguments.kwonlyargs:
        texts.append("*")
    texts += [_argument(a, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    return texts + ([f"**{ast.unparse(arguments.kwarg)}"] if arguments.kwarg else [])


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    return ast.unparse(argument) + (f" = {ast.unparse(default)}" if default is not None else "")


def _prose(text: str) -> str:
    """A docstring in Markdown: roles and double backticks become plain code."""
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text)
    return text.replace("``", "`")
