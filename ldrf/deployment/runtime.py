"""What a runtime must be able to do: run a whole network, and time layers by themselves."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor, nn

from ldrf.deployment.geometry import Piece
from ldrf.errors import LdrfError
from ldrf.inputs import Inputs
from ldrf.registry import RUNTIMES
from ldrf.units.indices import Left


@dataclass(frozen=True)
class Prepared:
    """A network as a runtime runs it; ``cut(slim, left)`` is the same network cut, where that is quicker than anew."""

    call: Callable[[], Any]
    cut: Callable[[nn.Module, Left], "Prepared | None"] = lambda slim, left: None


class PrepareNetwork(Protocol):
    def __call__(self, model: nn.Module, inputs: Inputs, threads: int) -> Prepared: ...


class OpenFile(Protocol):
    def __call__(self, path: Path, threads: int) -> Callable[[Inputs], list[Tensor]]: ...


class TimePieces(Protocol):
    def __call__(self, pieces: Sequence[Piece], threads: int, rounds: int) -> list[list[float]]: ...


@dataclass(frozen=True)
class Runtime:
    """One way to run networks.

    To add one, put a file with an ``ENTRY`` into ``deployment/runtimes``, or call ``ldrf.registry.RUNTIMES.register``
    from outside. ``time_pieces`` gives seconds per call of each piece, one for each round, in turns. ``open_file`` runs
    an ONNX file, where the runtime reads such files.
    """

    version: Callable[[], str | None]  # None where it is not installed
    needs: str  # what to do about that
    prepare: PrepareNetwork
    time_pieces: TimePieces
    clock: Callable[[], float] = time.perf_counter
    open_file: OpenFile | None = None


def find_runtime(name: str) -> Runtime:
    """The runtime of this name, if it is installed."""
    runtime: Runtime = RUNTIMES.find(name)
    if runtime.version() is None:
        raise LdrfError(f"The runtime '{name}' is not installed: {runtime.needs}.")
    return runtime


def installed_runtimes() -> list[str]:
    """Names of the runtimes that can be used here."""
    return [name for name in RUNTIMES.names if RUNTIMES.find(name).version() is not None]
