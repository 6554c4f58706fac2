"""The flags of every command, from the dataclasses that the command line is read with."""

import dataclasses
import re
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin, get_type_hints

from docstring_parser import parse_from_object
from tyro.conf import Positional

from ldrf.cli.commands import COMMANDS

POSITIONAL = get_args(Positional[str])[1]


def commands() -> str:
    """A section for every command: what it is for, an example, its flags."""
    sections = []
    for kind in COMMANDS:
        text = re.sub(r": (ldrf [^\n]+)", r": `\1`", kind.help).replace("\n", "\n\n").replace("\n\n\n\n", "\n\n")
        rows = [f"| `{flag}` | {default} | {what} |" for flag, default, what in flags(kind)]
        sections.append("\n".join([f"## ldrf {kind.command}\n", text, "", "| | default | |", "|---|---|---|", *rows]))
    return "\n\n".join(sections)


def flags(kind: type) -> Iterator[tuple[str, str, str]]:
    """Flag, default and description of every field of a command, those of its settings included."""
    hints = get_type_hints(kind, include_extras=True)
    texts = {param.arg_name: param.description or "" for param in parse_from_object(kind).params}
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        if dataclasses.is_dataclass(hint):
            yield from flags(hint)  # pyright: ignore[reportArgumentType]
            continue
        what = " ".join(texts[field.name].split())
        yield _flag(field.name, hint), _default(field.default), what


def _flag(name: str, hint: Any) -> str:
    extras = getattr(hint, "__metadata__", ())
    bare = get_args(hint)[0] if extras else hint
    value = next((extra.metavar for extra in extras if getattr(extra, "metavar", None)), _value(bare))
    if POSITIONAL in extras:
        return value
    return f"--{name.replace('_', '-')} {value}".rstrip()


def _value(kind: Any) -> str:
    """How a value is named in the help, by its type; a switch takes none."""
    choices = [choice for part in (kind, *get_args(kind)) if get_origin(part) is Literal for choice in get_args(part)]
    if choices:
        return f"{{{','.join(map(str, choices))}}}"
    if kind is bool:
        return ""
    return next(part for part in (kind, *get_args(kind)) if isinstance(part, type)).__name__.upper()


def _default(value: Any) -> str:
    if value is dataclasses.MISSING:
        return "needed"
    return "" if value is None or value is False or value == () else f"`{value}`"
