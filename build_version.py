"""The version of a build: that of the last tag, told by git, or by the source distribution it is built from."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent
NEXT = "0.2.0"  # of a checkout without any tag
TAG = re.compile(r"v(\d+)\.(\d+)\.(\d+)-(\d+)-g([0-9a-f]+)")


def version() -> str:
    """The tag's own version at the tag, such as 0.2.0; after it the next one in the making, such as 0.2.1.dev3."""
    packed = ROOT / "PKG-INFO"
    if packed.exists():
        return re.findall(r"^Version: (.+)$", packed.read_text(), re.MULTILINE)[0]
    return from_tag(_described())


def _described() -> str:
    """What git says of the last tag, how many commits ago it was, and of the present one; '' where it says nothing."""
    command = ["git", "describe", "--tags", "--long", "--match", "v[0-9]*"]
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def from_tag(described: str) -> str:
    """The version for ``v0.2.0-3-gabc123``, three commits after the tag v0.2.0."""
    found = TAG.fullmatch(described)
    if found is None:
        return f"{NEXT}.dev0"
    major, minor, patch, since = map(int, found.groups()[:4])
    return f"{major}.{minor}.{patch + 1}.dev{since}" if since else f"{major}.{minor}.{patch}"
