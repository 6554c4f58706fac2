"""The operators that channels are followed through."""

import ldrf.channels.operators  # noqa: F401  # fills the table
from ldrf.tracing.operator_table import OPERATORS


def operators() -> str:
    """Their names, in alphabetical order."""
    return ", ".join(f"`{name.removeprefix('aten.')}`" for name in sorted(OPERATORS) if name.startswith("aten."))
