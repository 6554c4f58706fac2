"""``ldrf ship``: from a checkpoint to a release in one command."""

import sys
from dataclasses import asdict
from typing import Any

import ldrf
from ldrf.cli.arguments.ship import Ship
from ldrf.cli.images import open_test
from ldrf.cli.models import open_model
from ldrf.cli.output import Report
from ldrf.data.sources import open_data, picture_making

WORDS = {
    "prune": "prune",
    "finetune": "fine-tune without labels",
    "export": "write the file to run",
    "int8": "quantise to int8",
    "measure": "compare and time all networks",
}


def run(arguments: Ship) -> Report:
    """Do all steps that are not done, and show what each gained and cost."""
    own, config = arguments.settings()
    named = open_model(own["model"], own["weights"], own["architecture"], arguments.device)
    batches = open_data(own["data"], "train").take(own["images"], config.prune.seed)
    test = open_test(own["data"], own["test_images"])
    kept = {name: own[name] for name in ("data", "images", "test_images", "architecture") if own.get(name) is not None}
    shipped = ldrf.ship(
        named.model,
        batches,
        own["out"],
        config,
        test=test,
        source={**named.source, **kept},
        pictures=picture_making(own["data"]),
        on_event=None if arguments.json else _tell,
    )
    data = {
        "folder": str(shipped.folder),
        "file": str(shipped.file),
        "int8_file": None if shipped.int8_file is None else str(shipped.int8_file),
        "rows": [asdict(row) for row in shipped.rows],
        "judged": shipped.judged,
        "tested": shipped.tested,
        "seconds": shipped.seconds,
        "notes": list(shipped.notes),
    }
    return Report(data, [str(shipped), f"See {shipped.folder / 'report.html'}"])


def _tell(event: str, data: dict[str, Any]) -> None:
    """A line for every step."""
    if event == "step":
        done = " (done before)" if data["done"] else ""
        print(f"{WORDS[data['name']]}{done}", file=sys.stderr, flush=True)
    elif event == "stepped":
        print(f"  {data['seconds']:.0f} s", file=sys.stderr, flush=True)
