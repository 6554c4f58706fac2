"""Whether ``torchrun`` started this as one of several processes, and which of them prints; needs no torch."""

import contextlib
import os
from collections.abc import Iterator

from ldrf.errors import LdrfError

GIVEN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # what torchrun tells every process


class AlreadyPrinted(LdrfError):
    """An error that this process or another has printed already; ``code`` is what to exit with."""

    def __init__(self, code: int) -> None:
        super().__init__("already printed")
        self.code = code


def launched() -> bool:
    """Whether torchrun started this as one of several processes."""
    return all(name in os.environ for name in GIVEN) and int(os.environ["WORLD_SIZE"]) > 1


def speaks() -> bool:
    """Whether this process prints: the only one, or the first."""
    return not launched() or os.environ["RANK"] == "0"


@contextlib.contextmanager
def others_silent() -> Iterator[None]:
    """Nothing is printed in processes other than the first."""
    if speaks():
        yield
        return
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        yield
