"""What a slim network learns in fine-tuning, and how it is judged: found by trying both networks on an example."""

import copy
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ldrf.config import FinetuneConfig
from ldrf.errors import LdrfError, first_line
from ldrf.files.checksums import fingerprint
from ldrf.finetuning.distillation import meeting_points, near_points
from ldrf.finetuning.state import TuningRun
from ldrf.inputs import Inputs, main_output
from ldrf.result import Measure
from ldrf.runtime.layout import arranged, lay_out, layout_for


@dataclass(frozen=True)
class Task:
    """What the student learns and how it is judged; ``points`` are the blocks at which it follows the teacher."""

    teacher: nn.Module | None
    points: tuple[str, ...]
    measure: Measure
    judging: Iterable[Any]
    config: FinetuneConfig
    device: torch.device
    layout: torch.memory_format
    epochs: float = 1.0  # passes over the images, the last of which may end early


@torch.no_grad()
def make_task(
    run: TuningRun,
    dense: nn.Module | None,
    judging: Iterable[Any],
    example: Inputs,
    config: FinetuneConfig,
    epochs: float = 1.0,
) -> Task:
    """Try both networks on the example, and see from it what there is to learn from and to judge by."""
    teacher, points = None, ()
    layout = layout_for(run.student.eval(), ready(example, run.device))
    for model in (run.student, run.average):
        lay_out(model, layout)
    inputs = ready(example, run.device, layout)
    scores = _tried(run.student, inputs)
    if config.logits + config.embeddings > 0:
        if dense is None:
            raise LdrfError("Distillation needs the dense model: pass it, or set 'logits' and 'embeddings' to 0.")
        teacher = copy.deepcopy(dense).eval().float().to(run.device).requires_grad_(False)
        if _tried(teacher, inputs).shape != scores.shape:
            raise LdrfError("The dense and the slim model must give outputs of the same shape: is it the right one?")
        points = meeting_points(teacher, run.student, inputs) if config.embeddings > 0 else ()
        points = near_points(teacher, run.student, points, inputs)
    classifies = scores.ndim == 2 and scores.shape[1] > 1
    if config.labels > 0 and not classifies:
        raise LdrfError("Labels need a classifier with scores [batch, classes]: set 'labels' to 0.")
    measure: Measure = "accuracy" if config.labels > 0 else "agreement" if classifies else "fidelity"
    return Task(teacher, points, measure, judging, config, run.device, layout, epochs)


def check_teacher(dense: nn.Module | None, checksums: Mapping[str, str] | None) -> None:
    """Raise where the dense model has other weights than the slim one was pruned from, if these are known."""
    known = (checksums or {}).get("weights")
    if dense is not None and known is not None and fingerprint(dense.state_dict().items()) != known:
        raise LdrfError(
            "The dense model has other weights than the one that was pruned, and would teach the slim model those: "
            "pass the weights it came from, or force_teacher=True (--force-teacher) to go on."
        )


@contextmanager
def telling_of_parts(parts: tuple[str, ...]) -> Iterator[None]:
    """Where a model was pruned by parts, as detectors are, a batch that it cannot be trained on is told so."""
    try:
        yield
    except LdrfError as problem:
        if not parts:
            raise
        raise LdrfError(
            f"Only {', '.join(parts)} of this model were pruned, and finetune trains models that take tensors and give "
            f"them: train it in your own loop, as the dense one, and keep it by ldrf.save. {problem}"
        ) from problem


def _tried(model: nn.Module, inputs: Inputs) -> Tensor:
    try:
        outputs = inputs.call(model)
    except Exception as problem:
        shapes = ", ".join(str(tuple(t.shape)) for t in inputs.tensors())
        raise LdrfError(
            f"{type(model).__name__} cannot take a batch of shape {shapes}: {first_line(problem)}"
        ) from problem
    return main_output(outputs)


def ready(inputs: Inputs, device: torch.device, layout: torch.memory_format = torch.contiguous_format) -> Inputs:
    """On the model's device, in float32, images in the layout that suits the model."""
    there = inputs.map(lambda t: t.to(device, torch.float32) if t.is_floating_point() else t.to(device))
    return arranged(there, layout)
