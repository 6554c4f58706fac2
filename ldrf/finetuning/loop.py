"""Fine-tune a slim model towards the dense one, without labels, with them, or both (Sec. "VGG-9 on CIFAR-10").

A part of the images only judges: without labels by the distance of the outputs from the dense ones, with labels by
the share of right answers. The best state by that is handed back, the slim model itself among the candidates.
"""

import copy
import math
import time
import warnings
from collections.abc import Iterable, Iterator, Sized
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ldrf.calibration.augmentation import Augmented, augmented
from ldrf.calibration.indexed_batches import IndexedBatches
from ldrf.config import FinetuneConfig
from ldrf.errors import LdrfError, LdrfWarning
from ldrf.events import OnEvent, teller
from ldrf.files.checksums import fingerprint
from ldrf.finetuning.data import Part, in_memory, parts, read_sample
from ldrf.finetuning.distillation import embedding_distance, output_distance, shared_variance, taps, variance
from ldrf.finetuning.judging import cross_entropy, judge
from ldrf.finetuning.shared_norms import shared_norms
from ldrf.finetuning.state import TuningRun, keep, resumed
from ldrf.finetuning.task import Task, check_teacher, make_task, ready, telling_of_parts
from ldrf.inputs import Inputs, main_output
from ldrf.result import Epoch, FinetuneResult, PruneResult, versions
from ldrf.runtime.device import Device, descent_precision, find_device, forward_precision
from ldrf.runtime.processes import check_same, sum_number, sum_slopes
from ldrf.runtime.progress import progress
from ldrf.saving.checkpoint import CARRIED
from ldrf.tracing.batch_sizes import takes_any_batch
from ldrf.tracing.counting import count_macs, count_parameters
from ldrf.tracing.wrappers import unwrapped

EXAMPLES = 16  # of the images that judge, on which both networks are tried
WARM_UP = 100  # first steps, in which the rate rises: the slim network is near its goal, and no mean is known yet


def finetune(
    slim: nn.Module | PruneResult,
    dense: nn.Module | None,
    batches: Iterable[Any],
    *,
    held_out: Iterable[Any] | None = None,
    config: FinetuneConfig | None = None,
    resume: str | Path | None = None,
    on_event: OnEvent | None = None,
    device: Device | None = None,
    force_teacher: bool = False,
) -> FinetuneResult:
    """Train a copy of ``slim`` to answer as ``dense`` does on ``batches``; neither model given is changed.

    Labels in the batches are left unread unless ``config.labels`` is above 0; with labels alone ``dense`` may be None.
    The images are held in memory and a part of them is set apart to judge. For more images than fit, pass that part
    as ``held_out``, best of images that the prune did not see: it is too good on those it saw. ``batches`` is then gone
    through as it is, once an epoch (its ``set_epoch`` is called first if it has one). ``resume`` names a file that
    keeps the state after every epoch: the same call goes on from there.
    It trains on ``device``, by default where the slim model is; the tuned model comes back where that is.
    Where ``slim`` is a result or from ``ldrf.load``, ``dense`` must have the weights it was pruned from, unless
    ``force_teacher``.
    """
    config, tell = config or FinetuneConfig(), teller(on_event)
    dense = None if dense is None else unwrapped(dense)
    start = slim if isinstance(slim, nn.Module) else slim.model
    if not force_teacher:
        carried = vars(unwrapped(start)).get(CARRIED, {})
        check_teacher(dense, slim.checksums if isinstance(slim, PruneResult) else carried.get("checksums"))
    run = TuningRun.of(start, config.rate, find_device(device, start), config.optimiser)
    with telling_of_parts(slim.parts if isinstance(slim, PruneResult) else ()):
        training, judging = _split(run.student, batches, held_out, config)
        example = _example(run, judging, config, held_out is not None, _fixes_batch(slim))
        given = enumerate([*start.state_dict().values(), *example.tensors()])
        check_same(partial(fingerprint, given), "weights and images")
        task = make_task(run, dense, judging, example, config, _epochs(training, config))
    if not resumed(run, resume, config, start):
        run.begin(*judge(run.student, task))
    while not _over(run, task):
        run.add(_train_and_judge(run, training, task), config.labels > 0)
        keep(run, resume, config, start)
        tell(
            "epoch", **asdict(run.epochs[-1]), epochs=math.ceil(task.epochs), measure=task.measure, best=run.best_score
        )
    tell("done", measure=task.measure, began=run.began, ended=run.best_score)
    model = copy.deepcopy(start)
    model.load_state_dict(run.best)
    return FinetuneResult(
        model=model,
        measure=task.measure,
        began=run.began,
        ended=run.best_score,
        best_epoch=run.best_epoch,
        epochs=tuple(run.epochs),
        images=(run.trained, run.judged),
        config=config,
        versions=versions(run.device),
        example=example.first(1).map(lambda t: t.clone()),
        pruned=slim.as_dict() if isinstance(slim, PruneResult) else _costs(dense, start, example),
    )


def _split(
    student: nn.Module, batches: Iterable[Any], held_out: Iterable[Any] | None, config: FinetuneConfig
) -> tuple[Iterable[Any], Iterable[Any]]:
    """Batches to train on and batches to judge by."""
    if config.labels > 0 and isinstance(batches, IndexedBatches) and not batches.labelled:
        raise LdrfError("The images have no labels: set 'labels' to 0.")
    if held_out is not None:
        if isinstance(batches, Iterator) or isinstance(held_out, Iterator):
            raise LdrfError("Batches with 'held_out' are gone through every epoch: pass a DataLoader, not an iterator.")
        return batches, [held_out] if isinstance(held_out, Tensor) else held_out
    indexed = batches if isinstance(batches, IndexedBatches) else in_memory(student, batches, config.labels > 0)
    training, judging = indexed.split(config.held_out, config.seed)
    return training.sized(config.batch), judging.sized(max(config.batch, 64))


def _epochs(training: Iterable[Any], config: FinetuneConfig) -> float:
    """Passes over the images: as many as are wanted, or as the steps that are wanted take."""
    if config.iterations is None:
        return config.epochs
    if not isinstance(training, Sized):
        raise LdrfError("With 'iterations' the batches must have a length: pass a DataLoader, or set 'epochs' instead.")
    return config.iterations / max(len(training), 1)


def _fixes_batch(slim: nn.Module | PruneResult) -> bool:
    """Whether the model, or its graph, was found to take one batch size only when it was pruned."""
    if isinstance(slim, PruneResult):
        return slim.example.fixed
    return "rows" in (vars(unwrapped(slim)).get(CARRIED, {}).get("inputs") or {})


def _example(run: TuningRun, judging: Iterable[Any], config: FinetuneConfig, as_given: bool, fixed: bool) -> Inputs:
    """Some of the images that judge; all of their batch where the model takes no other number.

    Such a model can be trained only if the batches are gone through as they are given.
    """
    first = next(iter(judging), None)
    if first is None:
        raise LdrfError("Fine-tuning needs held-out images to judge by. Got none.")
    inputs, student = read_sample(run.student, first, config.labels > 0).inputs, run.student.eval()
    if not fixed or takes_any_batch(student, ready(inputs, run.device)):
        return inputs.first(EXAMPLES)
    if not as_given:
        raise LdrfError(
            f"{type(student).__name__} takes one batch size only, and fine-tuning makes batches of its own: pass "
            "held_out= as well, and batches of that size in both."
        )
    return replace(inputs, fixed=True)


def _train_and_judge(run: TuningRun, training: Iterable[Any], task: Task) -> Epoch:
    """One more epoch: train the student, then judge the mean of its weights."""
    clock, epoch = time.perf_counter(), len(run.epochs) + 1
    loss, run.trained = _epoch(run, _ordered(training, task.config, epoch), task)
    score, distance, _ = judge(run.average, task) if math.isfinite(loss) else (math.nan, math.nan, 0)
    seconds = round(time.perf_counter() - clock, 3)
    done = max((epoch - 1) / task.epochs, _spent(run, clock) / _allowed(task.config))
    return Epoch(epoch, loss, score, distance, _rate(done, task.config), seconds)


def _ordered(training: Iterable[Any], config: FinetuneConfig, epoch: int) -> Iterable[Any]:
    """The training batches of this epoch: in a new order, or as the user's own loader gives them."""
    if isinstance(training, IndexedBatches):
        return training.shuffled(config.seed * 1000 + epoch)
    if hasattr(training, "set_epoch"):
        training.set_epoch(epoch)  # pyright: ignore[reportAttributeAccessIssue]
    return training


def _epoch(run: TuningRun, batches: Iterable[Any], task: Task) -> tuple[float, int]:
    """Go once through the batches; the mean loss (not a number where it diverged) and the images seen."""
    epoch, config = len(run.epochs), task.config
    generator = torch.Generator().manual_seed(config.seed * 1000 + epoch)
    count = len(batches) if isinstance(batches, Sized) else None
    total, steps, rows, began = 0.0, 0, 0, time.perf_counter()
    _set_modes(run.student, config)
    shared = parts(run.student, batches, config.labels > 0)
    for step, part in enumerate(progress(shared, f"epoch {epoch + 1} of {math.ceil(task.epochs)}", count)):
        if part.whole < 2 and config.norms == "batch":
            continue  # a single row has no variance
        warms = epoch == 0 and config.optimiser == "muon"
        warm = min(1.0, (step + 1) / min(count or WARM_UP, WARM_UP)) if warms else 1.0
        seen = epoch + (step / count if count else 0)
        if step and (_spent(run, began) > _allowed(config) or seen > task.epochs - 1e-9):
            break
        done = max(seen / task.epochs, _spent(run, began) / _allowed(config))
        run.set_rate(warm * _rate(done, config))
        loss = part.weight * _loss(run.student, part, task, generator)
        value = sum_number(loss.item())
        if not math.isfinite(value):
            warnings.warn(f"The loss is not a number in epoch {epoch + 1}: a smaller rate may help.", LdrfWarning, 2)
            return math.nan, rows
        run.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        sum_slopes(run.student.parameters())
        run.optimiser.step()
        run.follow(config.ema)
        total, steps, rows = total + value, steps + 1, rows + part.whole
    if not steps:
        raise LdrfError("Fine-tuning needs at least one batch of two images. Got none.")
    return total / steps, rows


def _set_modes(student: nn.Module, config: FinetuneConfig) -> None:
    """Evaluation mode, so no dropout, but for BatchNorms that follow the batches."""
    student.eval()
    for module in student.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.train(config.norms == "batch")


def _loss(student: nn.Module, part: Part, task: Task, generator: torch.Generator) -> Tensor:
    """Weighted sum of the distances to outputs and embeddings of the dense model, and the cross-entropy with labels."""
    config, sample, spread = task.config, part.sample, shared_variance if part.divided else variance
    chance = (generator, part.start, part.whole)
    changed = Augmented(sample.inputs.to(task.device))
    if config.augment:
        changed = augmented(changed.inputs, *chance, blended=task.teacher is not None)
    inputs = ready(changed.inputs, task.device, task.layout)
    precision = partial(forward_precision, task.device, descent_precision(task.device, config.precision))
    with precision(), taps(student, task.points) as mine, shared_norms(student, part.divided):
        outputs = inputs.call(student)
    loss = torch.zeros((), device=task.device)
    if task.teacher is not None:
        with precision(), torch.no_grad(), taps(task.teacher, task.points) as theirs:
            wanted = inputs.call(task.teacher)
        loss = loss + config.logits * output_distance(outputs, wanted, spread)
        loss = loss + config.embeddings * embedding_distance(mine, theirs, spread)
    if sample.labels is not None:
        loss = loss + config.labels * cross_entropy(main_output(outputs).float(), sample.labels, changed.shares)
    return loss


def _spent(run: TuningRun, began: float) -> float:
    """Seconds of all epochs so far, and since ``began``."""
    return sum(epoch.seconds for epoch in run.epochs) + time.perf_counter() - began


def _allowed(config: FinetuneConfig) -> float:
    """Seconds that all epochs may take."""
    return math.inf if config.minutes is None else max(60 * config.minutes, 1e-9)


def _rate(done: float, config: FinetuneConfig) -> float:
    """The learning rate after a share of the work, falling to zero as a cosine or a line."""
    done = min(done, 1.0)
    return config.rate * (0.5 * (1 + math.cos(math.pi * done)) if config.schedule == "cosine" else 1 - done)


def _over(run: TuningRun, task: Task) -> bool:
    """All epochs are done, the loss is not a number, or there was no gain for too long."""
    done, config = len(run.epochs), task.config
    failed = bool(run.epochs) and not math.isfinite(run.epochs[-1].loss)
    tired = config.patience is not None and done - run.best_epoch >= config.patience
    late = _spent(run, time.perf_counter()) >= _allowed(config)
    return done >= task.epochs - 1e-9 or failed or tired or late


def _costs(dense: nn.Module | None, slim: nn.Module, example: Inputs) -> dict[str, Any]:
    """What a result must tell of a slim model that did not come out of :func:`ldrf.prune`."""
    macs, parameters = count_macs(slim, example), count_parameters(slim)
    before, weights = (count_macs(dense, example), count_parameters(dense)) if dense else (macs, parameters)
    return {
        "speedup": before / macs,
        "macs": {"dense": before, "slim": macs},
        "parameters": {"dense": weights, "slim": parameters},
        "inputs": example.described(),
    }
