"""``results/<recipe>.json``: everything a run found, with what is needed to make it again."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ldrf.errors import LdrfError
from ldrf.reproduce.recipe import Outcomes, Scale
from ldrf.strict_json import plain, read_json


@dataclass(frozen=True)
class Results:
    """The outcome of a recipe: command, network and data (their folders left out), the scale, and all cells."""

    recipe: str
    command: str
    model: str
    data: str
    quick: bool
    scale: Scale
    cells: Mapping[str, Mapping[str, Any]]
    left: tuple[str, ...]
    refused: Mapping[str, str]

    def outcomes(self) -> Outcomes:
        planned = frozenset((*self.cells, *self.left, *self.refused))
        return Outcomes(self.cells, self.scale, planned)

    @property
    def versions(self) -> list[str]:
        """Versions that cells were made with, each once, such as 'torch 2.6'."""
        found = {f"{name} {version}" for cell in self.cells.values() for name, version in cell["versions"].items()}
        return sorted(found)


def records_by_key(path: Path) -> dict[str, Mapping[str, Any]]:
    """The finished cells of a file of results under the hashes of their settings, none where there is no such file."""
    cells = read(path).cells if path.is_file() else {}
    return {cell["key"]: cell for cell in cells.values() if isinstance(cell.get("key"), str)}


def write(results: Results, folder: Path) -> Path:
    """Write ``folder/<recipe>.json``, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{results.recipe}.json"
    beside = path.with_suffix(".tmp")
    beside.write_text(json.dumps(plain(asdict(results)), indent=1, ensure_ascii=False) + "\n")
    os.replace(beside, path)
    return path


def read(path: Path) -> Results:
    """The results in ``path``."""
    try:
        found = read_json(path)
        return Results(**{**found, "scale": Scale(**found["scale"]), "left": tuple(found["left"])})
    except (ValueError, TypeError, KeyError, OSError) as problem:
        raise LdrfError(f"'{path}' is not a file of results ({problem}): run its recipe again.") from problem
