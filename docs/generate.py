"""Write the parts of the pages that come from the code: ``python docs/generate.py``, or ``--check`` to compare only.

A page has a line ``<!-- generated: NAME -->`` where such a part begins and ``<!-- end of NAME -->`` where it ends.
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path

from generators.api import names, tools
from generators.architecture import picture, table
from generators.commands import commands
from generators.examples import examples
from generators.operators import operators

DOCS = Path(__file__).parent
PARTS: dict[str, Callable[[], str]] = {
    "commands": commands,
    "api": names,
    "tools": tools,
    "examples": examples,
    "operators": operators,
    "folders": table,
}
PICTURE = DOCS / "figures" / "architecture.svg"
MARKED = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end of \2 -->)", re.DOTALL)


def fresh_pages() -> dict[Path, str]:
    """Every page with generated parts, and the picture, as they should be."""
    pages = {page: page.read_text() for page in sorted(DOCS.glob("*.md"))}
    fresh = {page: MARKED.sub(_filled, text) for page, text in pages.items() if MARKED.search(text)}
    return fresh | {PICTURE: picture()}


def _filled(part: re.Match[str]) -> str:
    begin, name, end = part.groups()
    return f"{begin}\n{PARTS[name]().strip()}\n\n{end}"


def main(argv: list[str]) -> int:
    """Write what differs, or with ``--check`` name it and end in 1."""
    stale = [(page, text) for page, text in fresh_pages().items() if not page.exists() or page.read_text() != text]
    for page, text in stale:
        print(f"{'stale' if '--check' in argv else 'wrote'}: {page.relative_to(DOCS.parent)}")
        if "--check" not in argv:
            page.write_text(text)
    return 1 if stale and "--check" in argv else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
