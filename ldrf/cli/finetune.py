"""``ldrf finetune``: win back accuracy, with or without labels."""

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from rich.table import Table
from tqdm import tqdm
from tyro.conf import Positional, arg

import ldrf
from ldrf.cli.models import is_result, open_dense, open_model
from ldrf.cli.output import Report
from ldrf.cli.prune import check_out, open_test
from ldrf.config import FinetuneConfig
from ldrf.data.sources import Batches, open_data
from ldrf.errors import LdrfError
from ldrf.events import OnEvent
from ldrf.files.record import read_record
from ldrf.measuring.accuracy import measure_accuracy
from ldrf.result import FinetuneResult
from ldrf.runtime.processes import from_first, is_first

HELP = """Train a slim model to answer as its dense one does, on unlabelled images; the same command resumes it.

For example: ldrf finetune runs/demo --data sample --out runs/tuned --epochs 10"""


@dataclass(frozen=True)
class Finetune:
    """Arguments of ``ldrf finetune``."""

    model: Annotated[Positional[str], arg(metavar="FOLDER")]
    """Result folder with the slim model."""
    data: Annotated[str, arg(metavar="DATA")]
    """Images: sample, cifar10:folder, imagefolder:folder, or file.py:factory."""
    out: Annotated[Path, arg(metavar="FOLDER")]
    """Result folder for the tuned model; until it is done, FOLDER.resume.pt beside it keeps the state."""
    weights: Annotated[str | None, arg(metavar="FILE")] = None
    """Weights of the dense model, if they are not where they were."""
    architecture: Annotated[str | None, arg(metavar="MODEL")] = None
    """The dense model, if the folder does not name it."""
    images: Annotated[int | None, arg(metavar="INT")] = None
    """Images to use, of the data's training images; all by default."""
    test_images: Annotated[int | None, arg(metavar="INT")] = None
    """Labelled test images to compare all three models on: all by default, 0 for none."""
    tensorboard: Annotated[Path | None, arg(metavar="FOLDER")] = None
    """Write the curve for TensorBoard, too."""
    force: bool = False
    """Replace an earlier result in the folder."""
    json: bool = False
    """Print one JSON object instead of the tables."""
    config: FinetuneConfig = field(default_factory=FinetuneConfig)

    def run(self) -> Report:
        """Tune, compare, save."""
        from_first(lambda: check_out(self.out, self.force))
        if not is_result(self.model):
            raise LdrfError(f"'{self.model}' is no result folder: make one with 'ldrf prune'.")
        named, record = open_model(self.model, architecture=self.architecture), read_record(self.model)
        dense = open_dense(self.model, self.weights, self.architecture).model if self._distils else None
        batches = open_data(self.data, "train").take(self.images, self.config.seed)
        test = open_test(self.data, self.test_images)
        state = self.out.with_name(f"{self.out.name}.resume.pt")
        tuned = ldrf.finetune(named.model, dense, batches, config=self.config, resume=state, on_event=self._listeners())
        if not is_first():
            return Report({})  # the first process measures and writes
        tuned = replace(tuned, pruned={**record, **{k: record["metrics"][k] for k in ("macs", "parameters")}})
        metrics = dict(record["metrics"])
        metrics.pop("accuracy", None)  # of the model before
        if test is not None:
            metrics["accuracy"] = _accuracies(dense, named.model, tuned, test)
        ldrf.save(tuned, self.out, metrics=metrics, source=record.get("source"))
        state.unlink(missing_ok=True)
        data = {**tuned.as_dict()["finetune"], "metrics": metrics, "folder": str(self.out)}
        shown = [_summary(metrics["accuracy"])] if test is not None else []
        return Report(data, [str(tuned), *shown, f"Saved in {self.out}"])

    @property
    def _distils(self) -> bool:
        return self.config.logits + self.config.embeddings > 0

    def _listeners(self) -> OnEvent:
        """Shows every epoch on a terminal, and writes it for TensorBoard where that is wanted."""
        write = None
        if self.tensorboard is not None and is_first():
            from ldrf.integrations.tensorboard import tensorboard

            write = tensorboard(self.tensorboard)

        def on_event(event: str, data: dict[str, Any]) -> None:
            if write is not None:
                write(event, data)
            if event == "epoch" and sys.stderr.isatty():
                line = f"epoch {data['epoch']}/{data['epochs']}  loss {data['loss']:.4f}"
                tqdm.write(f"{line}  {data['measure']} {data['score']:.2%}", file=sys.stderr)

        return on_event


def _accuracies(dense: Any, slim: Any, tuned: FinetuneResult, test: Batches) -> dict[str, float | int]:
    """Top-1 and top-5 of the tuned model as 'slim', what it was before, and of the dense one where it is there."""
    found: dict[str, float | int] = {}
    for name, model in {"dense": dense, "before": slim, "slim": tuned.model}.items():
        if model is not None:
            accuracy = measure_accuracy(model, test, f"evaluate {name}")
            found |= {name: accuracy.top1, f"{name}_top5": accuracy.top5, "images": accuracy.images}
    return found


def _summary(found: dict[str, float | int]) -> Table:
    names = [name for name in ("dense", "before", "slim") if name in found]
    heads = {"dense": "dense", "before": "slim before", "slim": "slim after"}
    table = Table("", *(heads[name] for name in names), "won back")
    for column in table.columns[1:]:
        column.justify = "right"
    for title, suffix in (("top-1", ""), ("top-5", "_top5")):
        drop = found.get(f"dense{suffix}", 0) - found[f"before{suffix}"]
        gain = found[f"slim{suffix}"] - found[f"before{suffix}"]
        share = f" ({gain / drop:.0%} of the drop)" if "dense" in found and drop > 0 else ""
        cells = [f"{found[name + suffix]:.2f} %" for name in names]
        table.add_row(f"{title}, {found['images']:,} images", *cells, f"{gain:+.2f} points{share}")
    return table
