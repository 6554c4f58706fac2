"""A result folder read back whole: the slim model, and everything that was noted of how it came to be."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ldrf.config import PruneConfig
from ldrf.deployment.latency import Latency
from ldrf.errors import LdrfError
from ldrf.files.record import read_record
from ldrf.files.result_folders import DETAILS
from ldrf.files.strict_json import read_json
from ldrf.inputs import made_up_inputs
from ldrf.recomposition.best import HeldOut
from ldrf.result import Computed, PruneResult, Tried, UnitReport
from ldrf.saving.checkpoint import load
from ldrf.units.unit import Skipped


def load_result(folder: str | Path, model: nn.Module) -> PruneResult:
    """The result that was saved in ``folder``, its slim model as :func:`load` makes it from ``model``, in eval mode.

    Spectra and error curves come back to five digits, the example as random numbers of the same shape. Of a folder
    that was fine-tuned this is the result of pruning, with the trained weights, and ``finetune`` says what was done.
    """
    folder = Path(folder).expanduser()
    slim, record = load(folder, model), read_record(folder)
    try:
        return _result(slim, record, _details(folder))
    except LdrfError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as problem:
        raise LdrfError(f"'{folder}' does not say all of how its model was pruned: use ldrf.load.") from problem


def _result(slim: nn.Module, record: Mapping[str, Any], details: Mapping[str, Any]) -> PruneResult:
    figures, costs = dict(record), record["metrics"]
    kept = ("widths", "full_widths", "ranks", "images", "target", "seconds", "versions", "method", "attributes")
    return PruneResult(
        model=slim,
        spectra=_curves(details.get("spectra", {})),
        curves=_curves(details.get("curves", {})),
        curves_of=details.get("curves_of", "readers"),
        skipped=tuple(Skipped(**skip) for skip in record["skipped"]),
        history=tuple(UnitReport(**unit) for unit in record["history"]),
        macs=(costs["macs"]["dense"], costs["macs"]["slim"]),
        parameters=(costs["parameters"]["dense"], costs["parameters"]["slim"]),
        config=_config(record["config"]),
        example=made_up_inputs(record["inputs"], 1),
        held_out=_made(HeldOut, figures.get("held_out")),
        checksums=dict(figures.get("checksums") or {}),
        computed=_made(Computed, figures.get("computed")),
        latency=None if figures.get("latency") is None else Latency.from_dict(figures["latency"]),
        tried=tuple(Tried(**trial) for trial in figures.get("tried", ())),
        parts=tuple(figures.get("parts", ())),
        finetune=figures.get("finetune"),
        **{name: figures[name] for name in kept},
    )


def _made(kind: Any, values: Mapping[str, Any] | None) -> Any:
    return None if values is None else kind(**values)


def _config(noted: Mapping[str, Any]) -> PruneConfig:
    """The settings that were noted; those that the method did not read are the defaults."""
    known = {field.name for field in fields(PruneConfig)}
    return PruneConfig(**{name: value for name, value in noted.items() if name in known})


def _curves(noted: Mapping[str, list[float]]) -> dict[str, Tensor]:
    return {name: torch.tensor(values, dtype=torch.float64) for name, values in noted.items()}


def _details(folder: Path) -> dict[str, Any]:
    """What only a report shows; a folder is complete without it."""
    try:
        return dict(read_json(folder / DETAILS))
    except (OSError, ValueError, TypeError):
        return {}
