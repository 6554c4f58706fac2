"""What decides how a run ends, noted in its journal: settings in words, model and images by their checksums."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ldrf._version import __version__
from ldrf.calibration.calibration_set import Calibration
from ldrf.calibration.network import Network
from ldrf.config import PruneConfig
from ldrf.errors import LdrfError
from ldrf.files.checksums import fingerprint
from ldrf.runtime.processes import joined
from ldrf.units.targets import Target

FREE = ("memory", "device_memory", "offload")  # settings that may change on the way: they do not change the result


def described(
    network: Network, target: Target, method: str, config: PruneConfig, labels: Tensor | None
) -> dict[str, Any]:
    """Everything that decides what a run ends with, ready for JSON: settings in words, model and images by checksum."""
    return {
        "method": method,
        "target": target.as_dict(),
        "seed": config.seed,
        "config": asdict(config),
        "ignore": sorted(network.protected),
        "class": type(network.model).__name__,
        "images": network.calibration.examples,
        "checksums": {
            "weights": fingerprint(network.model.state_dict().items()),
            "inputs": fingerprint([*enumerate(_images(network.calibration)), ("labels", labels)]),
        },
        "versions": {"ldrf": __version__, "torch": torch.__version__},
    }


def _images(calibration: Calibration) -> list[str]:
    """A checksum of every image in its order, however they are divided into chunks and among processes."""
    checksums: dict[int, str] = {}
    for index in calibration.own():
        chunk = calibration.chunks[index]
        given = [(str(key), value) for key, value in (*enumerate(chunk.args), *chunk.kwargs.items())]
        for row, image in enumerate(calibration.images(index)):
            checksums[image] = fingerprint((key, v[row] if isinstance(v, Tensor) else v) for key, v in given)
    return [checksum for _, checksum in sorted(joined(checksums).items())]


def compare(folder: Path, now: dict[str, Any], then: dict[str, Any]) -> None:
    """Raise where two runs' settings differ, naming every difference."""
    here, there = _flat(now), _flat(then)
    names = [n for n in dict.fromkeys((*here, *there)) if n not in FREE and here.get(n) != there.get(n)]
    if names:
        differences = "; ".join(f"{n} is {_shown(here.get(n))} here and was {_shown(there.get(n))}" for n in names)
        raise LdrfError(
            f"'{folder}' holds a run with other settings: {differences} in the folder's run. "
            "Use the same to go on with it, or name another folder."
        )


def _flat(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings by the names the user knows them by."""
    named = {name: value for name, value in settings.items() if not isinstance(value, dict)}
    for group, form in (
        ("target", "{}"),
        ("config", "{}"),
        ("checksums", "the checksum of the {}"),
        ("versions", "{}"),
    ):
        values = settings.get(group)
        named |= {form.format(name): value for name, value in values.items()} if isinstance(values, dict) else {}
    return named


def _shown(value: Any) -> str:
    if isinstance(value, str) and len(value) == 64:
        return value[:12]
    return "not given" if value is None else json.dumps(value)
