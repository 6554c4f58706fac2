"""JSON from files that others may have written or damaged: read in bounded memory and time, and only if unambiguous."""

import json
import math
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LIMIT = 16 * 2**20  # bytes; the record of a network of ten thousand layers takes a third of it
DEPTH = 32  # objects and lists within one another
WHOLE = 2**63  # larger numbers count nothing there could be


def read_json(path: Path) -> Any:
    """The value in ``path``; a ValueError (or OSError) says in a few words what is wrong with it."""
    content = read_bytes(path, LIMIT)
    return parse_json(content)


def read_bytes(path: Path, limit: int) -> bytes:
    """The content of a plain file of at most ``limit`` bytes: a pipe or a device would be read for ever."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError("it is not a plain file")
    with path.open("rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise ValueError(f"it is larger than {limit:,} bytes")
    return content


def parse_json(content: bytes) -> Any:
    """The value that ``content`` spells: no key twice, no NaN, no number beyond 64 bits, nothing nested deeply."""
    try:
        value = json.loads(
            content.decode(),
            object_pairs_hook=_unique,
            parse_constant=_no_number,
            parse_int=_whole,
            parse_float=_finite,
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    _check(value)
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ValueError(f"the key {twice!r} is there twice")
    return table


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no number")


def _whole(digits: str) -> int:
    if len(digits) > 20 or not -WHOLE <= int(digits) < WHOLE:
        raise ValueError(f"the number {digits[:20]}... is too large")
    return int(digits)


def _finite(digits: str) -> float:
    if not math.isfinite(number := float(digits)):
        raise ValueError(f"the number {digits[:20]} is too large")
    return number


def _check(value: Any) -> None:
    """Raise where lists and objects lie too deep, or text holds half a character, which no file could take."""
    left = [(value, 0)]
    while left:
        item, depth = left.pop()
        if depth > DEPTH:
            raise ValueError("it is nested too deeply")
        if isinstance(item, str):
            item.encode()
        elif isinstance(item, dict):
            left += [(part, depth + 1) for pair in item.items() for part in pair]
        elif isinstance(item, list):
            left += [(part, depth + 1) for part in item]


def plain(value: Any) -> Any:
    """The same as JSON can hold it: tuples as lists, and None where a float is not finite."""
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
