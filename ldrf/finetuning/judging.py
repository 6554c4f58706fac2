"""How good a network is on the held-out images: the same measure for the start and for every epoch."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ldrf.errors import LdrfError
from ldrf.finetuning.data import own_batches, read_sample
from ldrf.finetuning.distillation import output_distance
from ldrf.finetuning.task import Task, ready
from ldrf.inputs import main_output
from ldrf.result import Measure
from ldrf.runtime.processes import sum_over
from ldrf.runtime.progress import progress


@torch.no_grad()
def judge(model: nn.Module, task: Task) -> tuple[float, float, int]:
    """On the held-out images: the score of ``model`` (1 at best), its distance from what is wanted, their number."""
    model.eval()
    good, total, far, rows = 0.0, 0.0, 0.0, 0
    for batch in progress(own_batches(task.judging), "judge"):
        sample = read_sample(model, batch, task.config.labels > 0)
        inputs = ready(sample.inputs, task.device, task.layout)
        outputs = inputs.call(model)
        mine, count = main_output(outputs), inputs.rows
        if sample.labels is not None:
            distance = cross_entropy(mine, sample.labels)
            got, possible = float((mine.argmax(1).cpu() == sample.labels).sum()), count
        else:
            wanted = inputs.call(task.teacher) if task.teacher is not None else outputs
            got, possible = _closeness(mine, main_output(wanted), task.measure)
            distance = output_distance(outputs, wanted)
        good, total = good + got, total + possible
        far, rows = far + float(distance) * count, rows + count
    good, total, far, rows = sum_over(torch.tensor([good, total, far, rows], dtype=torch.float64)).tolist()
    return good / max(total, 1e-30), far / max(rows, 1), int(rows)


def _closeness(mine: Tensor, dense: Tensor, measure: Measure) -> tuple[float, float]:
    """How many first answers are the dense model's, of how many; or how much of the outputs' variance is met."""
    if measure == "agreement":
        return float((mine.argmax(1) == dense.argmax(1)).sum()), len(mine)
    spread = float((dense - dense.mean(0)).square().sum())
    return spread - float((dense - mine).square().sum()), spread


def cross_entropy(scores: Tensor, labels: Tensor, shares: Tensor | None = None) -> Tensor:
    """The mean cross-entropy; ``shares`` [n] says how much of each image is that of the one before it."""
    classes = scores.shape[1]
    if not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise LdrfError(
            f"Labels must lie from 0 to {classes - 1}, as the model has {classes} classes. "
            f"Got {int(labels.min())} to {int(labels.max())} instead."
        )
    labels = labels.to(scores.device)
    if shares is None:
        return F.cross_entropy(scores, labels)
    own, other = (F.cross_entropy(scores, given, reduction="none") for given in (labels, labels.roll(1, 0)))
    return torch.lerp(own, other, shares.to(scores.device)).mean()
