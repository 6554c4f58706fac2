"""``ldrf bench``: how much faster the slim model really is, and where the rest is lost."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from tyro.conf import Positional, arg

from ldrf.cli.examples import open_example
from ldrf.cli.models import build, is_result, open_model
from ldrf.cli.output import Report, UsageError
from ldrf.measuring.bench import bench

HELP = """Time a slim model against its dense one, in turns: latency, throughput, memory, and every layer on its own.

For example: ldrf bench runs/demo --batch 1,32 --threads 1,2"""

T = TypeVar("T")


@dataclass(frozen=True)
class BenchCommand:
    """Arguments of ``ldrf bench``."""

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
    json: bool = False
    """Print one JSON object instead of the tables."""

    def run(self) -> Report:
        """Measure and show the tables."""
        cases: dict[str, Any] = {
            "batches": _list("--batch", self.batch, int),
            "threads": _list("--threads", self.threads, int),
            "backends": _list("--backend", self.backend, str),
        }
        if self.against is None and not is_result(self.model):
            raise UsageError(f"'{self.model}' is no result folder: name what to compare with by --against MODEL.")
        named = open_model(self.model, architecture=self.architecture)
        # Time does not depend on the weights, so the dense model needs none of its own.
        dense = open_model(self.against).model if self.against else build(str(named.source["model"]))
        example = open_example(self.model, named.model, self.data, max(cases["batches"]))
        found = bench(dense, named.model, example, **cases, seconds=self.seconds)
        against = self.against or named.source["model"]
        return Report({"model": self.model, "against": against, **found.as_dict()}, [str(found)])


def _list(flag: str, text: str, kind: Callable[[str], T]) -> list[T]:
    """The values between the commas."""
    try:
        return [kind(part.strip()) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"{flag} takes numbers with commas between, such as 1,32. Got '{text}' instead.") from None
