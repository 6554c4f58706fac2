"""``ldrf prune``: the paper's method from the command line."""

from typing import Any

import torch
from rich.table import Table
from torch import nn

import ldrf
from ldrf.cli.arguments.prune import Prune
from ldrf.cli.images import open_test, timed_example
from ldrf.cli.models import NamedModel, open_model
from ldrf.cli.output import Report, comparison
from ldrf.cli.provenance import noted
from ldrf.data.sources import Batches, open_data
from ldrf.errors import LdrfError
from ldrf.inputs import Inputs, main_output, read_inputs
from ldrf.measuring.accuracy import Accuracy, measure_accuracy
from ldrf.measuring.timing import latency_ratio
from ldrf.report import write_report
from ldrf.report.featuremaps import feature_maps
from ldrf.result import PruneResult
from ldrf.runtime.device import model_device
from ldrf.runtime.processes import from_first, is_first
from ldrf.saving.journal import check_free


def run(arguments: Prune) -> Report:
    """Prune, compare, save."""
    from_first(lambda: check_free(arguments.out, arguments.resume, arguments.force))
    named, batches = open_calibration(arguments)
    test = open_test(arguments.data, arguments.test_images)
    if arguments.parts is not None and not _gives_scores(named.model, batches):
        test = None  # a detector's boxes are not told right from wrong by labels
    where = {"out": arguments.out, "resume": arguments.resume, "force": arguments.force, "save": False}
    result = prune_as(arguments, named.model, batches, **where)
    if not is_first():
        return Report({})  # the first process measures and writes
    example = timed_example(named.model, batches, result)
    metrics = network_metrics(named.model, result, example, test)
    source = {**named.source, "data": arguments.data}
    details = {"featuremaps": feature_maps(named.model, result, example)}
    about = {"metrics": metrics, "source": source, "details": details, "run": noted(arguments)}
    ldrf.save(result, arguments.out, **about, force=arguments.force)
    page = write_report([arguments.out])
    files = {"folder": str(arguments.out), "report": str(page)}
    data = {**result.as_dict(), "metrics": metrics, "source": source, **files}
    times = [] if result.latency is None else [str(result.latency)]
    return Report(data, [str(result), *times, _summary(metrics), f"Saved in {arguments.out}; see {page}"])


def open_calibration(arguments: Prune) -> tuple[NamedModel, Batches]:
    """The model, and the images to calibrate on as they are before any are mirrored."""
    named = open_model(arguments.model, arguments.weights, arguments.architecture, arguments.device)
    return named, open_data(arguments.data, "train").take(arguments.images, arguments.config.seed)


def prune_as(arguments: Prune, model: nn.Module, batches: Batches, **options: Any) -> PruneResult:
    """The model pruned as the command line says."""
    given = ldrf.mirrored(batches) if arguments.mirror else batches
    asked = {"ignore": arguments.ignore, "method": arguments.method, "config": arguments.config}
    if arguments.parts is not None:
        asked |= {"parts": [part.strip() for part in arguments.parts.split(",")]}
    return ldrf.prune(model, given, **arguments.target(), **asked, **options)


@torch.no_grad()
def _gives_scores(model: nn.Module, batches: Batches) -> bool:
    try:
        main_output(read_inputs(model, next(iter(batches))).to(model_device(model)).call(model))
    except LdrfError:
        return False
    return True


def network_metrics(dense: nn.Module, result: PruneResult, example: Inputs, test: Batches | None) -> dict[str, Any]:
    """Cost of both networks, and their accuracy where there are labelled test images."""
    metrics: dict[str, Any] = {
        "macs": dict(zip(("dense", "slim"), result.macs, strict=True)),
        "parameters": dict(zip(("dense", "slim"), result.parameters, strict=True)),
        **_timing(dense, result, example),
    }
    if test is not None:
        accuracy = measure_accuracy(dense, test, "evaluate dense")
        metrics["accuracy"] = _accuracies(accuracy, measure_accuracy(result.model, test, "evaluate slim"))
    return metrics


def _timing(dense: nn.Module, result: PruneResult, example: Inputs) -> dict[str, Any]:
    """Milliseconds of both networks: those that a latency was asked for by, or in torch as it is set up here."""
    known = result.latency
    if known is not None:
        return {
            "latency_ms": {"dense": known.dense, "slim": known.slim},
            "timing": {"images": known.batch, "threads": known.threads},
        }
    return {
        "latency_ms": latency_ratio(dense, result.model.eval(), example),
        "timing": {"images": example.rows, "threads": torch.get_num_threads()},
    }


def _accuracies(dense: Accuracy, slim: Accuracy) -> dict[str, float | int]:
    return {
        "dense": dense.top1,
        "slim": slim.top1,
        "dense_top5": dense.top5,
        "slim_top5": slim.top5,
        "images": dense.images,
    }


def _summary(metrics: dict[str, Any]) -> Table:
    """Accuracy, MACs, parameters and latency of both networks."""
    rows: dict[str, tuple[str, str, str]] = {}
    if "accuracy" in metrics:
        accuracy = metrics["accuracy"]
        for name, suffix in (("top-1", ""), ("top-5", "_top5")):
            dense, slim = accuracy[f"dense{suffix}"], accuracy[f"slim{suffix}"]
            rows[f"{name}, {accuracy['images']:,} images"] = (
                f"{dense:.2f} %",
                f"{slim:.2f} %",
                f"{slim - dense:+.2f} points",
            )
    shown = {"MACs": ("macs", ",.0f"), "parameters": ("parameters", ",.0f"), "latency": ("latency_ms", ".2f")}
    for name, (key, form) in shown.items():
        dense, slim = metrics[key]["dense"], metrics[key]["slim"]
        unit, where = (" ms", _where(metrics["timing"])) if key == "latency_ms" else ("", "")
        change = f"{dense / slim:.2f}x less" if dense >= slim else f"{slim / dense:.2f}x more"
        rows[f"{name}{where}"] = (f"{dense:{form}}{unit}", f"{slim:{form}}{unit}", change)
    return comparison(rows)


def _where(timing: dict[str, int]) -> str:
    """How it was timed, in words."""
    return f", batch {timing['images']}, {timing['threads']} thread{'' if timing['threads'] == 1 else 's'}"
