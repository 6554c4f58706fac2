"""The commit of ldrf's own code, where it runs from a clone: many of them have one version."""

import subprocess
from pathlib import Path

SECONDS = 10  # git answers at once, or it waits for something


def code_commit(file: Path = Path(__file__)) -> str | None:
    """Git's short name of the commit that ``file`` is of, with '-dirty' where files were changed since; None where
    git does not know the file, as in an installed package."""
    if _git(file, "ls-files", "--error-unmatch", "--", file.name) is None:
        return None  # a folder of packages may lie within a repository of something else
    return _git(file, "describe", "--always", "--dirty", "--exclude", "*")


def _git(file: Path, *command: str) -> str | None:
    """What git says, or None where there is no git, no repository or no answer."""
    try:
        done = subprocess.run(
            ["git", "-C", str(file.parent), *command], capture_output=True, text=True, timeout=SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
