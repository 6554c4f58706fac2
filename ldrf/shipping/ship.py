"""``ldrf.ship``: from a trained model and unlabelled images to a checked file, its checkpoint, and a page about it."""

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from ldrf.deployment.int8 import has_dot_products
from ldrf.deployment.runtime import find_runtime
from ldrf.events import OnEvent, teller
from ldrf.files.checksums import fingerprint
from ldrf.files.result_folders import DETAILS
from ldrf.files.strict_json import read_json
from ldrf.files.writing import write_whole
from ldrf.report import write_report
from ldrf.runtime.device import Device
from ldrf.runtime.tables import table
from ldrf.saving.checkpoint import load, save
from ldrf.shipping.example import write_example
from ldrf.shipping.images import split_images
from ldrf.shipping.recipe import ShipConfig, as_yaml
from ldrf.shipping.release import (
    Release,
    ShippedRow,
    check_folder,
    export_step,
    finetune_step,
    int8_step,
    measure_step,
    prune_step,
)
from ldrf.shipping.steps import Steps, key_of
from ldrf.tracing.wrappers import unwrapped

STEPS, SLIM, RECIPE, PAGE = ".steps", "slim", "ship.yaml", "report.html"


@dataclass(frozen=True)
class Shipped:
    """A release: the file to run, what each step gained and cost, and the slim network itself."""

    folder: Path
    file: Path
    int8_file: Path | None
    rows: tuple[ShippedRow, ...]
    judged: int  # images that agreement is of
    tested: int  # labelled images that top-1 is of
    seconds: dict[str, float]
    notes: tuple[str, ...]
    model: nn.Module = field(repr=False)

    def __str__(self) -> str:
        heads = ["network", "agreement", "top-1", "ms", "faster", "MB"]
        dense = self.rows[0]
        rows = [
            (
                row.name,
                f"{row.agreement:.2f}%",
                "" if row.top1 is None else f"{row.top1:.2f}%",
                f"{row.milliseconds:.3f}",
                f"{dense.milliseconds / row.milliseconds:.2f}x",
                "" if row.bytes is None else f"{row.bytes / 1e6:.2f}",
            )
            for row in self.rows
        ]
        took = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in self.seconds.items())
        return "\n".join([table(heads, rows), "", *self.notes, f"{took}. To run: {self.int8_file or self.file}"])


def ship(
    model: nn.Module,
    batches: Iterable[Any],
    out: str | Path,
    config: ShipConfig,
    *,
    test: Iterable[Any] | None = None,
    source: dict[str, Any] | None = None,
    pictures: dict[str, Any] | None = None,
    on_event: OnEvent | None = None,
    device: Device | None = None,
) -> Shipped:
    """Prune ``model``, fine-tune it without labels, export it, quantise and time it: all of it into the folder ``out``.

    ``batches`` are unlabelled images; ``test`` has labelled ones, if top-1 is to be told. Killed and called again it
    goes on; with other settings only what depends on them is done again. The model given is not changed. ``pictures``
    says how a picture becomes an input (``resize``, ``crop``, ``mean``, ``std``), for ``example.py``. The folder holds
    the file to run, ``slim`` (as :func:`ldrf.load` reads it), ``report.html``, ``example.py`` and ``ship.yaml``.
    """
    release = _begin(unwrapped(model), batches, out, config, on_event)
    release = replace(release, test=test, source=source or {}, pictures=pictures, device=device)
    steps, folders = release.steps, {}
    pruned = steps.run("prune", release.key("prune"), partial(prune_step, release))
    folders["slim"] = Path(pruned["result"])
    if config.finetune is not None:
        work = partial(finetune_step, release, folders["slim"])
        folders["tuned"] = Path(steps.run("finetune", release.key("finetune"), work)["result"])
    last = list(folders.values())[-1]
    steps.run("export", release.key("export"), partial(export_step, release, last))
    int8 = steps.run("int8", release.key("int8"), partial(int8_step, release)) if config.int8 else None
    measured = steps.run("measure", release.key("measure"), partial(measure_step, release, folders))
    if int8 is None:
        release.int8_file.unlink(missing_ok=True)
    shipped = _shipped(release, measured, _notes(release, int8), last)
    _write(release, shipped, last, folders["slim"])
    release.steps.tell("shipped", file=str(shipped.int8_file or shipped.file), rows=measured["rows"])
    return shipped


def _begin(
    model: nn.Module, batches: Iterable[Any], out: str | Path, config: ShipConfig, on_event: OnEvent | None
) -> Release:
    """Everything that can be wrong is told here, before the work."""
    folder = Path(out).expanduser()
    check_folder(folder, folder / STEPS)
    find_runtime(str(config.deployment.runtime))
    images = split_images(model, batches, config.held_out, config.prune.seed)
    start = key_of(fingerprint(model.state_dict().items()), images.key())
    steps = Steps(folder / STEPS, teller(on_event))
    return Release(folder, copy.deepcopy(model).eval(), images, config, steps, start, {}, on_event=on_event)


def _notes(release: Release, int8: dict[str, Any] | None) -> tuple[str, ...]:
    """What a reader of the table must know about the file in int8."""
    if int8 is None:
        return ()
    lost, told = int8["before"] - int8["after"], []
    if "refused" in int8:
        worst = ", ".join(f"{name} ({share:.0%})" for name, share in int8["worst"])
        told.append(
            f"int8 is refused: it loses {lost:.2f} points of agreement, and {release.config.max_int8_drop:g} may go "
            f"(--max-int8-drop). The outputs that change most: {worst}."
        )
    if int8["reduced"] and not has_dot_products():
        told.append("Weights have 7 bits: this processor has no dot products of 8 bits (VNNI), and would overflow.")
    return tuple(told)


def _shipped(release: Release, measured: dict[str, Any], notes: tuple[str, ...], last: Path) -> Shipped:
    return Shipped(
        folder=release.folder,
        file=release.file,
        int8_file=release.int8_file if release.int8_file.exists() else None,
        rows=tuple(ShippedRow(**row) for row in measured["rows"]),
        judged=measured["judged"],
        tested=measured["tested"],
        seconds=release.steps.seconds,
        notes=notes,
        model=load(last, release.model),
    )


def _write(release: Release, shipped: Shipped, last: Path, pruned: Path) -> None:
    """The checkpoint with all figures, the page, the example and the recipe."""
    slim, dense, final = release.folder / SLIM, shipped.rows[0], shipped.rows[-1]
    where = release.config.deployment
    metrics: dict[str, Any] = {
        "latency_ms": {"dense": dense.milliseconds, "slim": final.milliseconds},
        "timing": {"images": where.batch, "threads": where.threads},
        "agreement": {"slim": final.agreement},
        "shipped": {
            "rows": [vars(row) for row in shipped.rows],
            "judged": shipped.judged,
            "runtime": str(where.runtime),
            "notes": list(shipped.notes),
            "seconds": shipped.seconds,
            "file": (shipped.int8_file or shipped.file).name,
        },
    }
    if final.top1 is not None and dense.top1 is not None:
        tops = {"dense": dense.top1, "slim": final.top1, "dense_top5": dense.top5, "slim_top5": final.top5}
        metrics["accuracy"] = {**tops, "images": shipped.tested}
    details = read_json(pruned / DETAILS)
    save(load(last, release.model), slim, metrics=metrics, source=release.source, details=details, force=True)
    write_report([slim], release.folder / PAGE)
    write_example(release, shipped.int8_file or shipped.file)
    write_whole(release.folder / RECIPE, as_yaml({**release.source, **release.config.as_dict()}))
