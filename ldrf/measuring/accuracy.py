"""How often a classifier is right: top-1 and top-5, in percent."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

from ldrf.errors import LdrfError, first_line
from ldrf.inputs import read_inputs, read_labels
from ldrf.runtime.device import model_device


@dataclass(frozen=True)
class Accuracy:
    """Percent of ``images`` whose label is the first guess (top-1) or among the first five (top-5)."""

    top1: float
    top5: float
    images: int


@torch.inference_mode()
def measure_accuracy(model: nn.Module, batches: Iterable[Any], name: str = "evaluate") -> Accuracy:
    """Run ``model`` over labelled batches, as a DataLoader gives them; its mode is restored afterwards."""
    mode = model.training
    model.eval()
    hits = torch.zeros(2, dtype=torch.long)
    images = 0
    try:
        for batch in tqdm(batches, desc=name, disable=None, leave=False):
            labels = read_labels(batch)
            hits += _hits(_call(model, batch), labels)
            images += len(labels)
    finally:
        model.train(mode)
    if not images:
        raise LdrfError("Nothing to evaluate on: the data has no labelled images.")
    top1, top5 = (100 * hits / images).tolist()
    return Accuracy(round(top1, 4), round(top5, 4), images)


def _call(model: nn.Module, batch: Any) -> Tensor:
    inputs = read_inputs(model, batch).to(model_device(model))
    try:
        outputs = inputs.call(model)
    except Exception as problem:
        shapes = ", ".join(str(list(t.shape)) for t in inputs.tensors())
        raise LdrfError(f"The model can't take a batch of shape {shapes}: {first_line(problem)}") from problem
    if isinstance(outputs, Mapping):
        outputs = outputs.get("logits")
    elif isinstance(outputs, Sequence):
        outputs = outputs[0]
    if not isinstance(outputs, Tensor) or outputs.ndim != 2:
        raise LdrfError("Evaluating needs a classifier: an output of scores [batch, classes].")
    return outputs


def _hits(scores: Tensor, labels: Tensor) -> Tensor:
    """Right first guesses and right first five, among scores [batch, classes]."""
    guesses = scores.topk(min(5, scores.shape[1]), dim=1).indices  # [batch, 5]
    right = guesses == labels.to(guesses.device).view(-1, 1)
    return torch.stack([right[:, 0].sum(), right.sum()]).cpu()
