"""Tables of the page: the paper's number, ours and the difference in one row."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

MISSING = "–"


@dataclass(frozen=True)
class Table:
    """Heads and rows of text; the first column is words, the others numbers."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        """The table as GitHub shows it, numbers to the right."""
        lines = [self.heads, ("---", *("---:" for _ in self.heads[1:])), *self.rows]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def number(value: float | None, digits: int = 2, unit: str = "") -> str:
    """A number with its unit, or a dash where there is none."""
    return MISSING if value is None else f"{_plain(value, digits)}{unit}"


def _plain(value: float, digits: int) -> str:
    text = f"{value:,.{digits}f}"
    return text.removeprefix("-") if float(text.replace(",", "")) == 0 else text  # no -0.00


def signed(value: float | None, digits: int = 2) -> str:
    """A difference with its sign."""
    if value is None:
        return MISSING
    text = f"{value:+,.{digits}f}"
    return text[1:] if float(text.replace(",", "")) == 0 else text


def compared(paper: float | None, ours: float | None, digits: int = 2) -> tuple[str, str, str]:
    """The paper's number, ours, and ours minus the paper's."""
    difference = None if paper is None or ours is None else ours - paper
    return number(paper, digits), number(ours, digits), signed(difference, digits)


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Mean and sample standard deviation of several seeds."""
    if not values:
        return MISSING
    mean = number(statistics.fmean(values), digits)
    return f"{mean} ± {number(statistics.stdev(values), digits)}" if len(values) > 1 else mean
