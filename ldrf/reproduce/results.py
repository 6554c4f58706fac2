"""``results/<recipe>.json``: everything a run found, with what is needed to make it again."""

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ldrf.errors import LdrfError
from ldrf.files.strict_json import plain, read_json
from ldrf.files.writing import write_whole
from ldrf.reproduce.recipe import Outcomes, Scale


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
        made_with = {f"{name} {version}" for cell in self.cells.values() for name, version in cell["versions"].items()}
        return sorted(made_with)

    @property
    def commits(self) -> list[str]:
        """Commits that cells were made at, each once; cells of earlier code do not tell theirs."""
        return sorted({str(cell["commit"]) for cell in self.cells.values() if cell.get("commit")})


def earlier_records(path: Path, keys: Collection[str]) -> dict[str, dict[str, Any]]:
    """The finished cells of a file of results by their keys, none where there is no such file.

    Cells of other keys would be lost when the file is written again, so it is refused with them.
    """
    if not path.is_file():
        return {}
    results = read(path)
    lost = [name for name, cell in results.cells.items() if cell.get("key") not in keys]
    if lost:
        raise LdrfError(
            f"'{path}' has {len(lost)} cells of other settings, images or weights, such as '{lost[0]}', and would lose "
            f"them; it was made by '{results.command}': run that, name another folder with --out, or move the file "
            "away."
        )
    return {cell["key"]: dict(cell) for cell in results.cells.values()}


def write(results: Results, folder: Path) -> Path:
    """Write ``folder/<recipe>.json``, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{results.recipe}.json"
    write_whole(path, json.dumps(plain(asdict(results)), indent=1, ensure_ascii=False) + "\n")
    return path


def read(path: Path) -> Results:
    """The results in ``path``."""
    try:
        content = read_json(path)
        return Results(**{**content, "scale": Scale(**content["scale"]), "left": tuple(content["left"])})
    except (ValueError, TypeError, KeyError, OSError) as problem:
        raise LdrfError(
            f"'{path}' is not a file of results ({problem}): delete it and run its recipe again."
        ) from problem
