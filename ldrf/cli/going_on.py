"""What to do after Ctrl-C: how a command goes on from where it was stopped."""

from pathlib import Path
from typing import Any


def how_to_go_on(arguments: Any) -> str:
    """The end of the sentence that begins with 'interrupted'."""
    from ldrf.files.result_folders import unfinished

    command, out = getattr(arguments, "command", None), getattr(arguments, "out", None)
    if not isinstance(out, Path):
        return ""
    state = out.with_name(f"{out.name}.resume.pt")
    if command == "prune" and unfinished(out):
        return ": what was done is kept, and the same command with --resume goes on from there"
    if command == "finetune" and state.is_file():
        return ": the epochs that are done are kept, and the same command goes on from there"
    if command in GOES_ON and out.is_dir():
        return f": what was done is kept, and the same command{GOES_ON[command]} goes on from there"
    return ""


GOES_ON = {"sweep": " with --resume", "ship": "", "reproduce": ""}
