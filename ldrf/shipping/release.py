"""The steps of a release, one function each: prune, fine-tune, export, quantise, measure."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial, wraps
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ldrf.deployment.int8 import quantize, worst_layers
from ldrf.deployment.runtime import find_runtime
from ldrf.deployment.stopwatch import time_in_turns
from ldrf.errors import LdrfError
from ldrf.events import OnEvent
from ldrf.files.record import read_record
from ldrf.files.result_folders import DETAILS, RECORD, unfinished
from ldrf.files.strict_json import read_json
from ldrf.finetuning.loop import finetune
from ldrf.inputs import Inputs, main_output, repeated
from ldrf.measuring.accuracy import measure_accuracy
from ldrf.measuring.agreement import agreement
from ldrf.pipeline import prune
from ldrf.report.featuremaps import feature_maps
from ldrf.runtime.device import Device, model_device
from ldrf.saving.checkpoint import load, save
from ldrf.saving.export import export
from ldrf.shipping.images import Images
from ldrf.shipping.recipe import ShipConfig
from ldrf.shipping.steps import Steps, key_of

CALIBRATED = 256  # images that ranges of int8 are taken from
SHOWN = 16  # images whose feature maps are made
LEAST = 2.0  # seconds that each network is timed for


@dataclass(frozen=True)
class Release:
    """Everything that the steps work on; nothing in it changes."""

    folder: Path
    model: nn.Module  # dense, in eval mode
    images: Images
    config: ShipConfig
    steps: Steps
    start: str  # key of the weights and images
    source: dict[str, Any]
    pictures: dict[str, Any] | None = None  # how a picture becomes an input, where that is known
    test: Any = None  # labelled batches, if there are any
    on_event: OnEvent | None = None
    device: Device | None = None

    @property
    def is_onnx(self) -> bool:
        return self.config.deployment.runtime in ("onnxruntime", "openvino")

    @property
    def file(self) -> Path:
        """The file to run, in floating point."""
        return self.folder / ("model.onnx" if self.is_onnx else "model.pt2")

    @property
    def int8_file(self) -> Path:
        return self.folder / "model.int8.onnx"

    @cached_property
    def wanted(self) -> list[Tensor]:
        """What the dense model says to the images that judge."""
        return [_answer(self.model, inputs) for inputs in self.images.judged]

    def key(self, step: str) -> str:
        """Of the settings of a step and all before it."""
        c = self.config
        settings: dict[str, Any] = {
            "prune": [c.target, asdict(c.deployment), asdict(c.prune), c.held_out],
            "finetune": None if c.finetune is None else asdict(c.finetune),
            "export": asdict(c.deployment),
            "int8": [c.int8, c.max_int8_drop],
            "measure": [asdict(c.deployment), self.test is not None, self.source.get("test_images")],
        }
        key = self.start
        for name, values in settings.items():
            key = key_of(key, name, values)
            if name == step:
                break
        return key


def prune_step(release: Release, folder: Path, again: bool) -> dict[str, Any]:
    """The slim network, in a result folder."""
    c, out = release.config, folder / "result"
    clocked: dict[str, Any] = {"deployment": c.deployment} if {"latency", "max_drop"} & set(c.target) else {}
    going = again and unfinished(out)
    result = prune(
        release.model,
        release.images.fitted,
        **c.target,
        **clocked,
        config=c.prune,
        out=out if "max_drop" not in c.target else None,
        resume=going,
        force=True,
        save=False,
        on_event=release.on_event,
        device=release.device,
    )
    few = release.images.example.map(lambda t: t[:SHOWN])
    details = {"featuremaps": feature_maps(release.model, result, few)}
    save(result, out, source=release.source, details=details, force=True)
    return {"files": [str(out / RECORD)], "speedup": result.speedup, "result": str(out)}


def finetune_step(release: Release, before: Path, folder: Path, again: bool) -> dict[str, Any]:
    """The slim network trained to answer as the dense one does, in a result folder of its own."""
    del again  # the state is there or not
    assert release.config.finetune is not None
    record, out, state = read_record(before), folder / "result", folder / "state.pt"
    slim, images, config = load(before, release.model), release.images, release.config.finetune
    tuned = finetune(
        slim,
        release.model,
        images.fitted.sized(config.batch),
        held_out=images.picking.sized(max(config.batch, 64)),
        config=config,
        resume=state,
        on_event=release.on_event,
        device=release.device,
    )
    costs = {name: record["metrics"][name] for name in ("macs", "parameters")}
    tuned = replace(tuned, pruned={**record, **costs})
    save(tuned, out, source=release.source, details=read_json(before / DETAILS), force=True)
    state.unlink(missing_ok=True)
    scores = {"measure": tuned.measure, "began": tuned.began, "ended": tuned.ended, "epochs": len(tuned.epochs)}
    return {"files": [str(out / RECORD)], "result": str(out), **scores}


def export_step(release: Release, result: Path, folder: Path, again: bool) -> dict[str, Any]:
    """The file to run, compared with the model before it takes its place."""
    del folder, again  # it is quick, and writes into the release itself
    exported = export(load(result, release.model), release.file, example=release.images.example)
    return {"files": [str(exported.path)], "bytes": exported.bytes, "error": exported.error}


def int8_step(release: Release, folder: Path, again: bool) -> dict[str, Any]:
    """The file in int8, if it agrees with the dense model nearly as often as the one in floating point."""
    del again
    c, images = release.config, release.images
    run = opened(release, release.file)
    before = agreement(run, images.judged, release.wanted)
    name, runtime = release.int8_file.name, str(c.deployment.runtime)
    made = quantize(release.file, images.inputs(CALIBRATED), folder / name, runtime=runtime)
    after = agreement(opened(release, made.path), images.judged, release.wanted)
    told = {"before": before, "after": after, "reduced": made.reduced, "bytes": made.bytes}
    if before - after <= c.max_int8_drop:
        made.path.replace(release.int8_file)
        return {"files": [str(release.int8_file)], **told}
    worst = worst_layers(release.file, made.path, images.judged[:1])
    made.path.unlink()
    release.int8_file.unlink(missing_ok=True)  # of earlier settings
    return {"refused": True, "worst": worst, **told}


def opened(release: Release, file: Path) -> Callable[[Inputs], Tensor]:
    """What a file answers in the runtime."""
    where = release.config.deployment
    open_file = find_runtime(str(where.runtime)).open_file
    assert open_file is not None  # checked by the settings
    run = open_file(file, where.threads)
    return lambda inputs: main_output(run(inputs))


@dataclass(frozen=True)
class ShippedRow:
    """One network on the way: how often it agrees with the dense one, how often it is right, how long it takes."""

    name: str
    agreement: float
    milliseconds: float
    bytes: int | None
    top1: float | None = None
    top5: float | None = None


def measure_step(release: Release, networks: dict[str, Path], folder: Path, again: bool) -> dict[str, Any]:
    """A row for each network; ``networks`` has result folders by name, the last one is what was exported."""
    del again
    has_int8 = release.int8_file.exists() and release.config.int8
    models = {"dense": release.model} | {name: load(path, release.model) for name, path in networks.items()}
    dense_file = export(release.model, folder / f"dense{release.file.suffix}", example=release.images.example)
    milliseconds = _timed(release, models, dense_file.path, has_int8)
    last, rows, tested = list(models)[-1], [], 0
    for name, model in models.items():
        size = {"dense": dense_file.bytes, last: release.file.stat().st_size}.get(name)
        agreed = agreement(partial(_answer, model), release.images.judged, release.wanted)
        *right, tested = _right(release, model)
        rows.append(ShippedRow(name, agreed, milliseconds.get(name, milliseconds[last]), size, *right))
    if has_int8:
        run, size = opened(release, release.int8_file), release.int8_file.stat().st_size
        agreed = agreement(run, release.images.judged, release.wanted)
        *right, _ = _right(release, _InRuntime(release.model, run))
        rows.append(ShippedRow("int8", agreed, milliseconds["int8"], size, *right))
    dense_file.path.unlink()
    judged = sum(inputs.rows for inputs in release.images.judged)
    return {"rows": [asdict(row) for row in rows], "judged": judged, "tested": tested}


def _timed(release: Release, models: dict[str, nn.Module], dense_file: Path, has_int8: bool) -> dict[str, float]:
    """Milliseconds of the dense network, of the last one, and of its file in int8, in turns."""
    where, last = release.config.deployment, list(models)[-1]
    runtime, inputs = find_runtime(str(where.runtime)), repeated(release.images.example, where.batch)
    if runtime.open_file is None:
        calls = {name: runtime.prepare(models[name], inputs, where.threads).call for name in ("dense", last)}
    else:
        files = {"dense": dense_file, last: release.file} | ({"int8": release.int8_file} if has_int8 else {})
        calls = {name: partial(runtime.open_file(file, where.threads), inputs) for name, file in files.items()}
    timed = time_in_turns(calls, where.threads, runtime.clock, least=LEAST)
    return {name: 1000 * seconds for name, seconds in timed.seconds.items()}


@torch.no_grad()
def _answer(model: nn.Module, inputs: Inputs) -> Tensor:
    return main_output(inputs.to(model_device(model)).call(model.eval())).float().cpu()


def _right(release: Release, model: nn.Module) -> tuple[float | None, float | None, int]:
    """Top-1 and top-5 on the labelled images, if there are any, and their number."""
    if release.test is None:
        return None, None, 0
    measured = measure_accuracy(model, release.test)
    return measured.top1, measured.top5, measured.images


class _InRuntime(nn.Module):
    """A file in a runtime that is called as the model it was made from."""

    def __init__(self, model: nn.Module, run: Callable[[Inputs], Tensor]) -> None:
        super().__init__()

        @wraps(model.forward)  # its arguments are the model's
        def forward(*args: Any, **kwargs: Any) -> Tensor:
            return run(Inputs(args, kwargs))

        self.forward = forward


def check_folder(folder: Path, steps: Path) -> None:
    """Raise where the folder holds anything that is not a release."""
    if folder.exists() and not folder.is_dir():
        raise LdrfError(f"'{folder}' is a file: a release needs a folder.")
    if folder.is_dir() and any(folder.iterdir()) and not steps.is_dir():
        raise LdrfError(f"'{folder}' is not empty and holds no earlier release: choose another folder.")
