"""Pictures from files: Pillow is needed only here, and only for data that comes as pictures."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from ldrf.errors import LdrfError

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "PPM")  # by content, whatever a file is called: others can start programs


def open_picture(path: Path) -> "Image":
    """Decode the whole picture at ``path`` as RGB, or say in one sentence why that fails."""
    try:
        from PIL import Image
    except ImportError as problem:
        raise LdrfError("Reading pictures needs Pillow: pip install 'ldrf[cli]'.") from problem
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path, formats=FORMATS) as picture:
                return picture.convert("RGB")
    except Exception as problem:  # a damaged picture can fail in any way, and one too large to decode is a warning here
        raise LdrfError(f"'{path}' is not a readable picture: {problem}.") from problem
