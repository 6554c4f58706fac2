"""What MkDocs does besides turning Markdown into HTML."""

from pathlib import Path
from typing import Any


def on_config(config: Any) -> Any:
    """Leave pages out of the menu that are not written yet."""
    config.nav = [entry for entry in config.nav if (Path(config.docs_dir) / next(iter(entry.values()))).is_file()]
    return config
