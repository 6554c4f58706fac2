"""A recipe: a pure list of cells, and how their outcomes fold into tables and figures."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ldrf.reproduce.cells import Cell
from ldrf.reproduce.figures import Figure
from ldrf.reproduce.tables import Table


@dataclass(frozen=True)
class Scale:
    """How much work a recipe does."""

    images: int
    """Images to calibrate on."""
    test_images: int | None
    """Images to evaluate on, None for all."""
    steps: int
    """Descent steps a unit, for LDRF."""
    iterations: int = 0
    """Iterations of fine-tuning, of 100 images each."""
    seeds: int = 1
    """Seeds where a spread is shown."""
    chunk: int = 32
    """Images run at a time."""
    timing: float = 6.0
    """Seconds for which a pair of networks is timed."""
    ends_only: bool = False
    """Whether of a range of speed-ups only the lowest and the highest are run."""


QUICK = Scale(images=64, test_images=200, steps=5, iterations=4, chunk=16, timing=0.5)


@dataclass(frozen=True)
class Section:
    """A part of the page: sentences, tables, figures; ``key`` is its name in the notes."""

    key: str
    title: str
    text: str
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()


@dataclass(frozen=True)
class Outcomes:
    """The finished cells of a recipe by name; what is missing reads as None."""

    records: Mapping[str, Mapping[str, Any]]
    scale: Scale
    planned: frozenset[str]
    """Names of all cells of the recipe."""

    def of(self, name: str) -> Mapping[str, Any]:
        """The outcome of a cell, empty where it is not finished."""
        return self.records.get(name, {}).get("outcome", {})

    def value(self, name: str, key: str = "top1") -> float | None:
        return self.of(name).get(key)

    def drop(self, name: str, key: str = "top1", dense: str = "dense") -> float | None:
        """Points of accuracy lost against the dense network."""
        before, after = self.value(dense, key), self.value(name, key)
        return None if before is None or after is None else before - after

    def speedup(self, name: str) -> float | None:
        """Dense MACs over slim MACs."""
        outcome = self.of(name)
        return outcome["dense_macs"] / outcome["macs"] if "dense_macs" in outcome else None


@dataclass(frozen=True)
class Recipe:
    """What ``ldrf reproduce NAME`` runs."""

    name: str
    title: str
    model: str
    """The network as the command line names it."""
    data: str
    """The form of data it wants."""
    full: Scale
    quick: Scale
    cells: Callable[[Scale], list[Cell]]
    sections: Callable[[Outcomes], list[Section]]
    random_crops: bool = False
    """Whether images to calibrate on are random crops and flips, as the paper's on ImageNet."""


def prune_cell(
    name: str,
    method: str,
    scale: Scale,
    target: dict[str, Any] | None = None,
    source: Cell | None = None,
    seed: int = 0,
    ignore: tuple[str, ...] = (),
    **config: Any,
) -> Cell:
    """A cell that prunes to ``target``, or to the widths of ``source``.

    "ldrf" is the paper's Algorithm 1; "ldrf-together" goes on with all units together, as the library does by itself.
    """
    steps = {"steps": scale.steps} if method.startswith("ldrf") else {}
    if method == "ldrf-together":
        method, steps = "ldrf", {**steps, "joint_steps": 2 * scale.steps}
    settings = {
        "method": method,
        "target": target or {},
        "images": scale.images,
        "test_images": scale.test_images,
        "seed": seed,
        "ignore": list(ignore),
        "config": {"chunk": scale.chunk, **steps, **config},
    }
    return Cell(name, "prune", settings, source)
