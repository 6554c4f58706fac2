"""The report that a command hands to :func:`ldrf.cli.main`, and how it is shown."""

import json
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table

from ldrf.runtime.tables import printable


@dataclass(frozen=True)
class Report:
    """The outcome of a command: ``data`` for machines, ``parts`` for people, and the exit code."""

    data: dict[str, Any]
    parts: list[RenderableType] = field(default_factory=list)
    code: int = 0


def show(report: Report, as_json: bool) -> None:
    """Print one JSON object, or the tables."""
    if as_json:
        print(json.dumps(report.data))
        return
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    for part in report.parts:
        console.print(printable(part, keep="\n") if isinstance(part, str) else part)


def comparison(rows: dict[str, tuple[str, str, str]]) -> Table:
    """A table of the dense and the slim network side by side."""
    table = Table("", "dense", "slim", "change")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, cells in rows.items():
        table.add_row(*map(printable, (name, *cells)))
    return table


def facts(rows: dict[str, str]) -> Table:
    """A table with one value per line."""
    table = Table(show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, value in rows.items():
        table.add_row(printable(name), printable(value))
    return table
