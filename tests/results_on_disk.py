"""Result folders written by hand, as ``ldrf.save`` writes them, for tests of what only reads them."""

import base64
import io
import json
import math
from pathlib import Path
from typing import Any

from PIL import Image

HOSTILE = "<script>alert('x')</script>\"&'"


def png(size: tuple[int, int] = (8, 4)) -> str:
    file = io.BytesIO()
    Image.new("L", size, 128).save(file, "png")
    return base64.b64encode(file.getvalue()).decode()


def record(units: dict[str, tuple[int, int, int]], **changed: Any) -> dict[str, Any]:
    """``ldrf.json`` of a run over these units: name -> (full, width, rank)."""
    history = [
        {"name": n, "full": full, "width": w, "rank": z, "cut_error": 0.4 / (i + 1), "error": 0.02, "way": "descent"}
        for i, (n, (full, w, z)) in enumerate(units.items())
        if w < full
    ]
    return {
        "format": 1,
        "class": "VGG9",
        "target": {"speedup": 3.0},
        "speedup": 3.001,
        "widths": {name: width for name, (_, width, _) in units.items()},
        "full_widths": {name: full for name, (full, _, _) in units.items()},
        "ranks": {name: rank for name, (_, _, rank) in units.items()},
        "skipped": [{"name": "head", "reason": "it is an output of the model"}],
        "history": history,
        "config": {"solver": "joint", "selection": "second-order", "steps": 250, "energy": 0.25, "lambda_2": None},
        "seed": 0,
        "images": 2048,
        "seconds": {"trace": 1.25, "plan": 30.5},
        "versions": {"ldrf": "0.1.0", "torch": "2.13.0"},
        "metrics": {
            "macs": {"dense": 155_128_832, "slim": 51_709_576},
            "parameters": {"dense": 3_511_754, "slim": 774_980},
            "latency_ms": {"dense": 71.86, "slim": 35.22},
            "timing": {"images": 16, "threads": 2},
            "accuracy": {"dense": 89.7, "slim": 88.7, "dense_top5": 99.7, "slim_top5": 99.55, "images": 2000},
        },
        "source": {"model": "vgg9", "weights": None, "data": "sample"},
        "shapes": {},
        **changed,
    }


def details(units: dict[str, tuple[int, int, int]], **changed: Any) -> dict[str, Any]:
    """``report.json`` of the same run."""
    return {
        "spectra": {n: [math.exp(-4 * i / full) for i in range(full)] for n, (full, _, _) in units.items()},
        "curves": {
            n: [math.exp(-6 * i / full) - math.exp(-6) for i in range(full + 1)] for n, (full, _, _) in units.items()
        },
        "curves_of": "outputs",
        "featuremaps": {
            "unit": next(iter(units)),
            "behind": "features.2",
            "image": png(),
            "dense": {"png": png(), "maps": 512, "shown": 64},
            "slim": {"png": png(), "maps": 23, "shown": 23},
        },
        **changed,
    }


UNITS = {"features.0": (64, 23, 3), "features.3": (64, 64, 7), "features.7": (128, 9, 11)}


def write_result(
    folder: Path, units: dict[str, tuple[int, int, int]] = UNITS, more: Any = None, **changed: Any
) -> Path:
    """A result folder without weights; ``more`` is its ``report.json``, left out when False."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ldrf.json").write_text(json.dumps(record(units, **changed)))
    if more is not False:
        (folder / "report.json").write_text(json.dumps(details(units) if more is None else more))
    return folder
