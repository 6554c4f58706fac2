"""Train or fine-tune CIFAR-10 networks by the paper's recipe, resumable after a kill."""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn
from tqdm import tqdm

from ldrf.calibration.augmentation import augment
from ldrf.data.cifar10 import LabelledImages, normalise
from ldrf.errors import LdrfError
from ldrf.files.tensor_files import read_torch
from ldrf.files.writing import replacing
from ldrf.inputs import Inputs
from ldrf.runtime.allocator import keep_large_blocks
from ldrf.runtime.device import model_device
from ldrf.runtime.layout import lay_out, layout_for
from ldrf.zoo.training_settings import TrainingSettings

PARTS = 8  # how often training for a number of iterations is measured and kept


@dataclass(frozen=True)
class Leg:
    """A stretch of training after which it is measured and kept: an epoch, or an eighth of the iterations."""

    number: int
    first: int
    steps: int


def fine_tuning(iterations: int, seed: int = 0) -> TrainingSettings:
    """The paper's fine-tuning of a pruned network: from a rate of 0.01 falling linearly; 10,000 iterations there.

    As in the paper, all else is as in the training of the dense network: here its decay and its smoothed labels.
    """
    return TrainingSettings(rate=0.01, warmup=0.0, seed=seed, iterations=iterations)


def train(
    model: nn.Module,
    data: LabelledImages,
    test: LabelledImages,
    folder: str | Path,
    settings: TrainingSettings | None = None,
) -> nn.Module:
    """Train ``model`` in place, leaving ``folder/last.pt`` after every epoch and resuming from it."""
    settings = settings or TrainingSettings()
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    keep_large_blocks()
    model = lay_out(model, _layout(model, data))
    optimiser = _optimiser(model, settings)
    curve = _resume(folder / "last.pt", model, optimiser, settings)
    legs = _legs(settings, len(data))
    for leg in legs[len(curve) :]:
        start = time.perf_counter()
        loss = _run(model, optimiser, data, settings, leg)
        accuracy = evaluate(model, test)
        curve.append([leg.first + leg.steps, loss, accuracy])
        _keep(folder / "last.pt", model, optimiser, settings, curve)
        minutes = (time.perf_counter() - start) / 60
        name = f"epoch {leg.number + 1}" if settings.iterations is None else f"part {leg.number + 1}"
        line = f"{name}/{len(legs)}  loss {loss:.4f}  test {accuracy:.2f} %  {minutes:.1f} min"
        tqdm.write(line)
        with (folder / "log.txt").open("a") as log:
            log.write(line + "\n")
    return model.eval()


def _optimiser(model: nn.Module, settings: TrainingSettings) -> torch.optim.Optimizer:
    """SGD that decays matrices and kernels, but neither biases nor norms."""
    decayed = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": settings.decay}, {"params": rest, "weight_decay": 0.0}]
    return torch.optim.SGD(groups, lr=settings.rate, momentum=settings.momentum, nesterov=True)


def _legs(settings: TrainingSettings, images: int) -> list[Leg]:
    if settings.iterations is None:
        epoch = _steps_per_epoch(images, settings)
        return [Leg(number, number * epoch, epoch) for number in range(settings.epochs)]
    parts = min(PARTS, settings.iterations)
    ends = [settings.iterations * number // parts for number in range(parts + 1)]
    return [Leg(number, ends[number], ends[number + 1] - ends[number]) for number in range(parts)]


def _steps_per_epoch(images: int, settings: TrainingSettings) -> int:
    """A last batch of a single image is left out: it has no variance."""
    return max(1, images // settings.batch + (images % settings.batch > 1))


def _run(
    model: nn.Module, optimiser: torch.optim.Optimizer, data: LabelledImages, settings: TrainingSettings, leg: Leg
) -> float:
    """One leg, whose order and augmentation depend on its number alone; the mean loss."""
    layout, device = _layout(model, data), model_device(model)
    model.train()
    generator = torch.Generator().manual_seed(settings.seed * 1000 + leg.number)
    order: list[Tensor] = []
    while len(order) < leg.steps:
        shuffled = torch.randperm(len(data), generator=generator).split(settings.batch)
        order += shuffled[: _steps_per_epoch(len(data), settings)]
    total = 0.0
    name = "epoch" if settings.iterations is None else "part"
    for step, rows in enumerate(tqdm(order[: leg.steps], desc=f"{name} {leg.number + 1}", disable=None, leave=False)):
        rate = settings.rate * _schedule(leg.first + step, len(data), settings)
        for group in optimiser.param_groups:
            group["lr"] = rate
        images = augment(normalise(data.images[rows]).to(device), generator).contiguous(memory_format=layout)
        loss = F.cross_entropy(model(images), data.labels[rows].to(device), label_smoothing=settings.smoothing)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        total += loss.item()
    return total / leg.steps


def _schedule(step: int, images: int, settings: TrainingSettings) -> float:
    """Share of the top rate at a step: a short linear rise, then a linear fall to zero."""
    per_epoch = _steps_per_epoch(images, settings)
    epoch = step / per_epoch
    if epoch < settings.warmup:
        return max(epoch / settings.warmup, 0.02)
    epochs = settings.epochs if settings.iterations is None else settings.iterations / per_epoch
    return (epochs - epoch) / (epochs - settings.warmup)


@torch.no_grad()
def evaluate(model: nn.Module, data: LabelledImages, batch: int = 500) -> float:
    """Top-1 accuracy in percent on CIFAR-style images."""
    mode = model.training
    model.eval()
    hits, layout, device = 0, _layout(model, data), model_device(model)
    for start in range(0, len(data), batch):
        part = data[slice(start, start + batch)]
        images = normalise(part.images).to(device).contiguous(memory_format=layout)
        hits += int((model(images).argmax(1).cpu() == part.labels).sum())
    model.train(mode)
    return 100 * hits / len(data)


def _layout(model: nn.Module, data: LabelledImages) -> torch.memory_format:
    return layout_for(model.eval(), Inputs((normalise(data[slice(0, 2)].images).to(model_device(model)),), {}))


def _keep(
    path: Path, model: nn.Module, optimiser: torch.optim.Optimizer, settings: TrainingSettings, curve: list[list[float]]
) -> None:
    state = {
        "model": model.state_dict(),
        "optimiser": optimiser.state_dict(),
        "recipe": asdict(settings),
        "epoch": len(curve),
        "curve": curve,
    }
    with replacing(path) as beside:
        torch.save(state, beside)


def _resume(
    path: Path, model: nn.Module, optimiser: torch.optim.Optimizer, settings: TrainingSettings
) -> list[list[float]]:
    """Load what was kept, if anything, and return the curve so far: steps, loss and accuracy after every leg."""
    if not path.exists():
        return []
    state = _read(path)
    if state["recipe"] != asdict(settings):
        raise LdrfError(
            f"'{path}' was trained with {state['recipe']}, not {asdict(settings)}: "
            "use the same settings to resume, or another folder to start anew."
        )
    try:
        model.load_state_dict(state["model"])
        optimiser.load_state_dict(state["optimiser"])
    except Exception as problem:  # torch checks names and shapes, and fails in its own ways
        raise LdrfError(f"'{path}' belongs to another network: use another folder to start anew.") from problem
    return list(state["curve"])


def _read(path: Path) -> dict[str, Any]:
    """What :func:`_keep` wrote, its curve and settings checked; torch checks the rest when it is loaded."""
    try:
        state = read_torch(path, checked=True)
        curve = state.get("curve", [[0, 0.0, 0.0]] * state["epoch"])  # older ones have no curve
        return {
            "recipe": {"iterations": None, **state["recipe"]},
            "model": state["model"],
            "optimiser": state["optimiser"],
            "curve": [[int(steps), float(loss), float(accuracy)] for steps, loss, accuracy in curve],
        }
    except (ValueError, OSError, TypeError, KeyError, AttributeError, MemoryError, OverflowError) as problem:
        raise LdrfError(f"'{path}' is not a readable training checkpoint: delete it to start anew.") from problem


def training_curve(folder: str | Path) -> list[tuple[int, float, float]]:
    """Steps done, mean loss and test accuracy in percent after every leg of the training in ``folder``."""
    return [(steps, loss, accuracy) for steps, loss, accuracy in _read(Path(folder) / "last.pt")["curve"]]


def save_weights(state: Mapping[str, Tensor], path: Path) -> None:
    """Write a state dict as safetensors, matrices and kernels in half precision, vectors as they are."""
    half = {k: (t.half() if t.is_floating_point() and t.ndim > 1 else t).contiguous() for k, t in state.items()}
    with replacing(path) as beside:
        save_file(half, beside)
