"""Plain-text tables for what the library prints."""

from collections.abc import Iterable, Sequence
from typing import Any


def printable(text: str, keep: str = "") -> str:
    """The text with control characters spelled out: a layer's name must not steer a terminal or end a line."""
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Columns aligned under their heads: numbers to the right, words to the left."""
    cells = [[printable(str(cell)) for cell in row] for row in rows]
    widths = [max(len(line[i]) for line in [list(heads), *cells]) for i in range(len(heads))]
    right = [i > 0 and all(_numeric(line[i]) for line in cells) for i in range(len(heads))]

    def line(items: Sequence[str]) -> str:
        padded = [c.rjust(w) if r else c.ljust(w) for c, w, r in zip(items, widths, right, strict=True)]
        return "  ".join(padded).rstrip()

    return "\n".join([line(heads), "  ".join("-" * w for w in widths), *(line(row) for row in cells)])


def _numeric(cell: str) -> bool:
    return not cell or cell.replace(",", "").replace(".", "").replace("%", "").replace("x", "").strip("-+ ").isdigit()
