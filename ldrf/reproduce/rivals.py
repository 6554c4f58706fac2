"""The methods that are compared: what to call them, who uses labels, and those that live outside the library."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from ldrf.data.plugins import load_factory
from ldrf.errors import LdrfError


@dataclass(frozen=True)
class Method:
    """A name for tables, and whether the method needs labels."""

    title: str
    labels: bool = False


METHODS = {
    "ldrf": Method("LDRF"),
    "ldrf-together": Method("LDRF, then all units together"),
    "he2017": Method("He et al. 2017"),
    "thinet": Method("ThiNet (Luo 2017)"),
    "li2017": Method("filter L1 (Li 2017)"),
    "torch-pruning-l1": Method("Torch-Pruning, L1"),
    "molchanov2017": Method("Taylor (Molchanov 2017)", labels=True),
    "torch-pruning-taylor": Method("Torch-Pruning, Taylor", labels=True),
    "hu2016": Method("APoZ (Hu 2016)"),
    "liu2017": Method("BN scale (Liu 2017)"),
    "activation": Method("activation"),
    "random": Method("random (Mittal 2018)"),
}
COLOURS = {
    "ldrf": "#0b6e4f",
    "ldrf-together": "#3fb68b",
    "he2017": "#c8553d",
    "thinet": "#2f6db5",
    "li2017": "#8a5fbf",
    "torch-pruning-l1": "#b08900",
    "molchanov2017": "#d1689f",
    "torch-pruning-taylor": "#7a4b1e",
    "hu2016": "#4aa3a2",
    "liu2017": "#6f8f2f",
    "activation": "#9a9a9a",
    "random": "#444444",
}
MARK = "†"  # behind the name of what uses labels

EXTERNAL = {"torch-pruning-l1": "l1", "torch-pruning-taylor": "taylor"}
ADAPTER = Path(__file__).parents[2] / "benchmarks" / "with_torch_pruning.py"


def titled(method: str) -> str:
    """The method's name for a table, marked where it uses labels."""
    known = METHODS[method]
    return f"{known.title} {MARK}" if known.labels else known.title


def prune_externally(method: str, model: nn.Module, batches: Iterable[Any], speedup: float) -> nn.Module:
    """The slim network that Torch-Pruning makes, through the adapter among the project's benchmarks.

    It takes the same share of every layer that meets the MACs: it has no widths to be told.
    """
    prune = load_factory(f"{ADAPTER}:prune_with_torch_pruning")
    try:
        return prune(model, list(batches), speedup, EXTERNAL[method]).eval()
    except ModuleNotFoundError as problem:
        raise LdrfError(f"{METHODS[method].title} needs {problem.name}: pip install 'ldrf[bench]'.") from problem
