"""Pictures from files: Pillow is needed only here, and only for data that comes as pictures."""

from pathlib import Path
from typing import TYPE_CHECKING

from ldrf.errors import LdrfError

if TYPE_CHECKING:
    from PIL.Image import Image


def open_picture(path: Path) -> "Image":
    """Decode the whole picture at ``path`` as RGB, or say in one sentence why that fails."""
    try:
        from PIL import Image
    except ImportError as problem:
        raise LdrfError("Reading pictures needs Pillow: pip install 'ldrf[cli]'.") from problem
    try:
        with Image.open(path) as picture:
            return picture.convert("RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as problem:
        raise LdrfError(f"'{path}' is not a readable picture: {problem}.") from problem
