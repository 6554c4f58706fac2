"""The methods that are compared: what to call them, who uses labels, and those that live outside the library."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from torch import nn

from ldrf.data.plugins import load_factory
from ldrf.errors import LdrfError
from ldrf.registry import METHODS


@dataclass(frozen=True)
class ComparedMethod:
    """What tables and charts call a method, the colour of its line, and whether it needs labels."""

    title: str
    colour: str
    labels: bool = False


# Methods that have no file of their own in ldrf/methods.
BESIDE = {
    "ldrf-together": ComparedMethod("LDRF, then all units together", "#3fb68b"),
    "torch-pruning-l1": ComparedMethod("Torch-Pruning, L1", "#b08900"),
    "aimet": ComparedMethod("AIMET, channel pruning", "#e07b39"),
    "torch-pruning-taylor": ComparedMethod("Torch-Pruning, Taylor", "#7a4b1e", labels=True),
}
# The order of rows and lines; a method that is not named here comes last.
ORDER = (
    "ldrf",
    "ldrf-together",
    "he2017",
    "thinet",
    "li2017",
    "torch-pruning-l1",
    "aimet",
    "molchanov2017",
    "torch-pruning-taylor",
    "hu2016",
    "liu2017",
)


def compared_methods() -> dict[str, ComparedMethod]:
    """Every method by name: those of the library, and those beside it."""
    own = {name: METHODS.find(name) for name in METHODS.names}
    known = {name: ComparedMethod(m.title or name, m.colour, m.labelled) for name, m in own.items()} | BESIDE
    return {name: known[name] for name in sorted(known, key=lambda n: ORDER.index(n) if n in ORDER else len(ORDER))}


COMPARED = compared_methods()
MARK = "†"  # behind the name of what uses labels

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@dataclass(frozen=True)
class External:
    """A method outside the library: the adapter among the project's benchmarks, what to tell it, what it needs."""

    adapter: str
    takes: Literal["speedup", "widths"]
    needs: str
    options: tuple[str, ...] = ()


EXTERNAL = {
    "torch-pruning-l1": External("with_torch_pruning.py:prune_with_torch_pruning", "speedup", "bench", ("l1",)),
    "torch-pruning-taylor": External("with_torch_pruning.py:prune_with_torch_pruning", "speedup", "bench", ("taylor",)),
    "aimet": External("with_aimet.py:prune_with_aimet", "widths", "aimet"),
}


def titled(method: str) -> str:
    """The method's name for a table, marked where it uses labels."""
    known = COMPARED[method]
    return f"{known.title} {MARK}" if known.labels else known.title


def prune_externally(
    method: str, model: nn.Module, batches: Iterable[Any], speedup: float, widths: Mapping[str, int]
) -> nn.Module:
    """The slim network that another library makes.

    Torch-Pruning takes the same share of every layer that meets the speed-up: it takes no widths.
    """
    known = EXTERNAL[method]
    prune = load_factory(f"{BENCHMARKS}/{known.adapter}")
    try:
        return prune(model, list(batches), speedup if known.takes == "speedup" else widths, *known.options).eval()
    except ModuleNotFoundError as problem:
        raise LdrfError(
            f"{COMPARED[method].title} needs {problem.name}: pip install 'ldrf[{known.needs}]'."
        ) from problem
