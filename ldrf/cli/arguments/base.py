"""What the arguments of all commands have in common."""

from pathlib import Path
from typing import ClassVar, Literal, get_args

from ldrf.errors import LdrfError

ZooName = Literal["vgg9", "resnet20", "resnet56"]  # the networks that come with ldrf

RANDOM = "random"  # in place of a file of weights: untrained ones, the same every time, for a trial


class UsageError(LdrfError):
    """A command line that makes no sense, noticed before any work; exit code 2."""


class Arguments:
    """The arguments of one command; its subclasses are frozen dataclasses that tyro fills in."""

    command: ClassVar[str]
    help: ClassVar[str]
    json: bool

    def check(self) -> None:
        """Raise a :class:`UsageError` for arguments that do not go together."""


def is_result(name: str) -> bool:
    """Whether ``name`` is a folder, and so a result folder or nothing."""
    return name not in get_args(ZooName) and Path(name).is_dir()
