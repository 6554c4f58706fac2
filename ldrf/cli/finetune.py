"""``ldrf finetune``: win back accuracy, with or without labels."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.table import Table
from tqdm import tqdm

import ldrf
from ldrf.calibration.indexed_batches import IndexedBatches
from ldrf.cli.arguments.base import is_result
from ldrf.cli.arguments.finetune import Finetune
from ldrf.cli.images import open_test
from ldrf.cli.models import open_dense, open_model
from ldrf.cli.output import Report
from ldrf.data.sources import Batches, open_data
from ldrf.errors import LdrfError
from ldrf.events import OnEvent
from ldrf.files.record import read_record
from ldrf.finetuning.task import check_teacher
from ldrf.finetuning.unseen import split_unseen
from ldrf.measuring.accuracy import measure_accuracy
from ldrf.result import FinetuneResult
from ldrf.runtime.processes import from_first, is_first
from ldrf.saving.journal import check_free


def run(arguments: Finetune) -> Report:
    """Tune, compare, save."""
    config, out = arguments.settings(), arguments.out
    from_first(lambda: check_free(out, force=arguments.force))
    if not is_result(arguments.model):
        raise LdrfError(f"'{arguments.model}' is not a result folder: make one with 'ldrf prune'.")
    device, record = arguments.device, read_record(arguments.model)
    named = open_model(arguments.model, architecture=arguments.architecture, device=device)
    dense = None
    if config.logits + config.embeddings > 0:  # the dense model is the teacher
        dense = open_dense(arguments.model, arguments.weights, arguments.architecture, device).model
        if not arguments.force_teacher:
            check_teacher(dense, record.get("checksums"))
    batches = open_data(arguments.data, "train").take(arguments.images, config.seed)
    split = {"batches": batches}
    if isinstance(batches, IndexedBatches):
        training, judging = split_unseen(batches, _seen(record, arguments.data), config.held_out, config.seed)
        split = {"batches": training.sized(config.batch), "held_out": judging.sized(max(config.batch, 64))}
    test = open_test(arguments.data, arguments.test_images)
    state = out.with_name(f"{out.name}.resume.pt")
    asked = {"config": config, "resume": state, "force_teacher": arguments.force_teacher}
    tuned = ldrf.finetune(named.model, dense, **split, **asked, on_event=_listeners(arguments))
    if not is_first():
        return Report({})  # the first process measures and writes
    tuned = replace(tuned, pruned={**record, **{k: record["metrics"][k] for k in ("macs", "parameters")}})
    metrics = dict(record["metrics"])
    metrics.pop("accuracy", None)  # of the model before
    if test is not None:
        metrics["accuracy"] = _accuracies(dense, named.model, tuned, test)
    ldrf.save(tuned, out, metrics=metrics, source=record.get("source"), force=arguments.force)
    state.unlink(missing_ok=True)
    data = {**tuned.as_dict()["finetune"], "metrics": metrics, "folder": str(out)}
    shown = [_summary(metrics["accuracy"])] if test is not None else []
    return Report(data, [str(tuned), *shown, f"Saved in {out}"])


def _seen(record: dict[str, Any], data: str) -> tuple[int, ...] | None:
    """The numbers of the images that the prune saw, as its record tells; None where it does not tell."""
    source, images, config = (record.get(name) for name in ("source", "images", "config"))
    told = source.get("data") if isinstance(source, dict) else None
    seed = config.get("seed") if isinstance(config, dict) else None
    if not isinstance(told, str) or type(images) is not int or images < 1 or type(seed) is not int:
        return None
    if _place(told) != _place(data):
        return ()  # other images
    pruned_on = open_data(told, "train").take(images, seed)
    return pruned_on.rows if isinstance(pruned_on, IndexedBatches) else None


def _place(data: str) -> tuple[str, Path]:
    """Named data as its kind and its folder, however the folder is written."""
    kind, _, folder = data.partition(":")
    return kind, Path(folder).expanduser().resolve()


def _listeners(arguments: Finetune) -> OnEvent:
    """Shows every epoch on a terminal, and writes it for TensorBoard if that is wanted."""
    write = None
    if arguments.tensorboard is not None and is_first():
        from ldrf.integrations.tensorboard import tensorboard

        write = tensorboard(arguments.tensorboard)

    def on_event(event: str, data: dict[str, Any]) -> None:
        if write is not None:
            write(event, data)
        if event == "epoch" and sys.stderr.isatty():
            line = f"epoch {data['epoch']}/{data['epochs']}  loss {data['loss']:.4f}"
            tqdm.write(f"{line}  {data['measure']} {data['score']:.2%}", file=sys.stderr)

    return on_event


def _accuracies(dense: Any, slim: Any, tuned: FinetuneResult, test: Batches) -> dict[str, float | int]:
    """Top-1 and top-5 of the tuned model as 'slim', what it was before, and of the dense one where it is there."""
    accuracies: dict[str, float | int] = {}
    for name, model in {"dense": dense, "before": slim, "slim": tuned.model}.items():
        if model is not None:
            accuracy = measure_accuracy(model, test, f"evaluate {name}")
            accuracies |= {name: accuracy.top1, f"{name}_top5": accuracy.top5, "images": accuracy.images}
    return accuracies


def _summary(accuracies: dict[str, float | int]) -> Table:
    names = [name for name in ("dense", "before", "slim") if name in accuracies]
    heads = {"dense": "dense", "before": "slim before", "slim": "slim after"}
    table = Table("", *(heads[name] for name in names), "won back")
    for column in table.columns[1:]:
        column.justify = "right"
    for title, suffix in (("top-1", ""), ("top-5", "_top5")):
        drop = accuracies.get(f"dense{suffix}", 0) - accuracies[f"before{suffix}"]
        gain = accuracies[f"slim{suffix}"] - accuracies[f"before{suffix}"]
        share = f" ({gain / drop:.0%} of the drop)" if "dense" in accuracies and drop > 0 else ""
        cells = [f"{accuracies[name + suffix]:.2f} %" for name in names]
        table.add_row(f"{title}, {accuracies['images']:,} images", *cells, f"{gain:+.2f} points{share}")
    return table
