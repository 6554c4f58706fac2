"""Arguments of ``ldrf bench``."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeVar

from tyro.conf import Positional, arg

from ldrf.cli.arguments.base import Arguments, UsageError, is_result

T = TypeVar("T")

HELP = """Time a slim model against its dense one, in turns: latency, throughput, memory, and each layer by itself.

For example: ldrf bench runs/demo --batch 1,32 --threads 1,2"""


@dataclass(frozen=True)
class Bench(Arguments):
    """Arguments of ``ldrf bench``."""

    command: ClassVar[str] = "bench"
    help: ClassVar[str] = HELP

    model: Annotated[Positional[str], arg(metavar="MODEL")]
    """A result folder, or any other model if --against is given."""
    against: Annotated[str | None, arg(metavar="MODEL")] = None
    """What to compare with: by default the dense model that the result folder was made from."""
    batch: Annotated[str, arg(metavar="INT,INT")] = "1,32"
    """Batch sizes; layers are timed at the largest."""
    threads: Annotated[str, arg(metavar="INT,INT")] = "1"
    """Numbers of threads; layers are timed with the first."""
    backend: Annotated[str, arg(metavar="NAME,NAME")] = "torch"
    """torch, onnxruntime, or both."""
    seconds: float = 1.0
    """Time spent on each network in each case."""
    data: Annotated[str | None, arg(metavar="DATA")] = None
    """Images to run on: sample, cifar10:folder, ...; random inputs by default."""
    architecture: Annotated[str | None, arg(metavar="MODEL")] = None
    """The dense model of a result folder that does not name it."""
    device: Annotated[str, arg(metavar="DEVICE")] = "auto"
    """Where to compute: auto (an accelerator if there is one), cpu, cuda:0, ..."""
    json: bool = False
    """Print one JSON object instead of the tables."""

    def check(self) -> None:
        self.cases()
        if self.against is None and not is_result(self.model):
            raise UsageError(f"'{self.model}' is not a result folder: add --against MODEL to compare with.")

    def cases(self) -> dict[str, Any]:
        """Batch sizes, numbers of threads and backends to measure."""
        return {
            "batches": _list("--batch", self.batch, int),
            "threads": _list("--threads", self.threads, int),
            "backends": _list("--backend", self.backend, str),
        }


def _list(flag: str, text: str, kind: Callable[[str], T]) -> list[T]:
    """The values between the commas."""
    try:
        return [kind(part.strip()) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"{flag} takes numbers separated by commas, such as 1,32. Got '{text}' instead.") from None
