"""The operators that channels are followed through."""

from ldrf.channels.operators import ROWS


def operators() -> str:
    """Their names, in alphabetical order."""
    return ", ".join(f"`{name.removeprefix('aten.')}`" for name in sorted(ROWS) if name.startswith("aten."))
