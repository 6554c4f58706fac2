"""Train or fine-tune CIFAR-10 networks by the paper's recipe, resumable after a kill."""

import os
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
from ldrf.inputs import Inputs
from ldrf.runtime.allocator import keep_large_blocks
from ldrf.runtime.layout import lay_out, layout_for
from ldrf.zoo.recipe import Recipe

PARTS = 8  # how often training for a number of iterations is measured and kept


@dataclass(frozen=True)
class Leg:
    """A stretch of training after which it is measured and kept: an epoch, or an eighth of the iterations."""

    number: int
    first: int
    steps: int


def fine_tuning(iterations: int, seed: int = 0) -> Recipe:
    """The paper's fine-tuning of a pruned network: from a rate of 0.01 falling linearly; 10,000 iterations there."""
    return Recipe(rate=0.01, warmup=0.0, decay=1e-4, smoothing=0.0, seed=seed, iterations=iterations)


def train(
    model: nn.Module, data: LabelledImages, test: LabelledImages, folder: str | Path, recipe: Recipe | None = None
) -> nn.Module:
    """Train ``model`` in place, leaving ``folder/last.pt`` after every epoch and resuming from it."""
    recipe = recipe or Recipe()
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    keep_large_blocks()
    model = lay_out(model, _layout(model, data))
    decayed = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": recipe.decay}, {"params": rest, "weight_decay": 0.0}]
    optimiser = torch.optim.SGD(groups, lr=recipe.rate, momentum=recipe.momentum, nesterov=True)
    curve = _resume(folder / "last.pt", model, optimiser, recipe)
    legs = _legs(recipe, len(data))
    for leg in legs[len(curve) :]:
        start = time.perf_counter()
        loss = _run(model, optimiser, data, recipe, leg)
        accuracy = evaluate(model, test)
        curve.append([leg.first + leg.steps, loss, accuracy])
        _keep(folder / "last.pt", model, optimiser, recipe, curve)
        minutes = (time.perf_counter() - start) / 60
        name = f"epoch {leg.number + 1}" if recipe.iterations is None else f"part {leg.number + 1}"
        line = f"{name}/{len(legs)}  loss {loss:.4f}  test {accuracy:.2f} %  {minutes:.1f} min"
        tqdm.write(line)
        with (folder / "log.txt").open("a") as log:
            log.write(line + "\n")
    return model.eval()


def _legs(recipe: Recipe, images: int) -> list[Leg]:
    if recipe.iterations is None:
        epoch = _steps_an_epoch(images, recipe)
        return [Leg(number, number * epoch, epoch) for number in range(recipe.epochs)]
    parts = min(PARTS, recipe.iterations)
    ends = [recipe.iterations * number // parts for number in range(parts + 1)]
    return [Leg(number, ends[number], ends[number + 1] - ends[number]) for number in range(parts)]


def _steps_an_epoch(images: int, recipe: Recipe) -> int:
    """A last batch of a single image is left out: it has no variance."""
    return max(1, images // recipe.batch + (images % recipe.batch > 1))


def _run(model: nn.Module, optimiser: torch.optim.Optimizer, data: LabelledImages, recipe: Recipe, leg: Leg) -> float:
    """One leg, whose order and augmentation depend on its number alone; the mean loss."""
    layout = _layout(model, data)
    model.train()
    generator = torch.Generator().manual_seed(recipe.seed * 1000 + leg.number)
    order: list[Tensor] = []
    while len(order) < leg.steps:
        shuffled = torch.randperm(len(data), generator=generator).split(recipe.batch)
        order += shuffled[: _steps_an_epoch(len(data), recipe)]
    total = 0.0
    name = "epoch" if recipe.iterations is None else "part"
    for step, rows in enumerate(tqdm(order[: leg.steps], desc=f"{name} {leg.number + 1}", disable=None, leave=False)):
        rate = recipe.rate * _schedule(leg.first + step, len(data), recipe)
        for group in optimiser.param_groups:
            group["lr"] = rate
        images = augment(normalise(data.images[rows]), generator).contiguous(memory_format=layout)
        loss = F.cross_entropy(model(images), data.labels[rows], label_smoothing=recipe.smoothing)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        total += loss.item()
    return total / leg.steps


def _schedule(step: int, images: int, recipe: Recipe) -> float:
    """Share of the top rate at a step: a short linear rise, then a linear fall to zero."""
    an_epoch = _steps_an_epoch(images, recipe)
    epoch = step / an_epoch
    if epoch < recipe.warmup:
        return max(epoch / recipe.warmup, 0.02)
    epochs = recipe.epochs if recipe.iterations is None else recipe.iterations / an_epoch
    return (epochs - epoch) / (epochs - recipe.warmup)


@torch.no_grad()
def evaluate(model: nn.Module, data: LabelledImages, batch: int = 500) -> float:
    """Top-1 accuracy in percent on CIFAR-style images."""
    mode = model.training
    model.eval()
    hits, layout = 0, _layout(model, data)
    for start in range(0, len(data), batch):
        part = data[slice(start, start + batch)]
        images = normalise(part.images).contiguous(memory_format=layout)
        hits += int((model(images).argmax(1) == part.labels).sum())
    model.train(mode)
    return 100 * hits / len(data)


def _layout(model: nn.Module, data: LabelledImages) -> torch.memory_format:
    return layout_for(model.eval(), Inputs((normalise(data[slice(0, 2)].images),), {}))


def _keep(
    path: Path, model: nn.Module, optimiser: torch.optim.Optimizer, recipe: Recipe, curve: list[list[float]]
) -> None:
    state = {
        "model": model.state_dict(),
        "optimiser": optimiser.state_dict(),
        "recipe": asdict(recipe),
        "epoch": len(curve),
        "curve": curve,
    }
    torch.save(state, path.with_suffix(".tmp"))
    os.replace(path.with_suffix(".tmp"), path)


def _resume(path: Path, model: nn.Module, optimiser: torch.optim.Optimizer, recipe: Recipe) -> list[list[float]]:
    """Load what was kept, if anything, and return the curve so far: steps, loss and accuracy after every leg."""
    if not path.exists():
        return []
    state = _read(path)
    if state["recipe"] != asdict(recipe):
        raise LdrfError(
            f"'{path}' was trained with {state['recipe']}, not {asdict(recipe)}: "
            "use the same settings to resume, or another folder to start anew."
        )
    try:
        model.load_state_dict(state["model"])
        optimiser.load_state_dict(state["optimiser"])
    except Exception as problem:  # torch checks names and shapes, and fails in its own ways
        raise LdrfError(f"'{path}' belongs to another network: use another folder to start anew.") from problem
    return list(state["curve"])


def _read(path: Path) -> dict[str, Any]:
    """What :func:`_keep` wrote, its curve and recipe checked; torch checks the rest when it is loaded."""
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
    save_file(half, path.with_suffix(".tmp"))
    os.replace(path.with_suffix(".tmp"), path)
