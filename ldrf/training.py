"""Train the zoo's CIFAR-10 networks by the paper's recipe, resumable after a kill."""

import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn
from tqdm import tqdm

from ldrf.allocator import keep_large_blocks
from ldrf.data.cifar10 import LabelledImages, normalise
from ldrf.errors import LdrfError


@dataclass(frozen=True)
class Recipe:
    """SGD with momentum, flips and padded crops, linearly falling rate (Sec. "VGG-9 on CIFAR-10").

    The paper trains 200 epochs from a rate of 0.1 with weight decay 1e-4; the short schedule here
    warms up first and wants the stronger decay to reach the same accuracy in a dozen epochs.
    """

    epochs: int = 12
    """Passes over the training images."""
    batch: int = 100
    """Images a step."""
    rate: float = 0.1
    """Top learning rate."""
    warmup: float = 1.0
    """Epochs of linear rise before the linear fall."""
    momentum: float = 0.9
    """Momentum (Nesterov)."""
    decay: float = 5e-4
    """Weight decay of conv and linear weights."""
    smoothing: float = 0.1
    """Label smoothing."""
    seed: int = 0
    """Seed of the order and the augmentation."""

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "rate"):
            if getattr(self, name) <= 0:
                raise LdrfError(f"The '{name}' of a recipe must be positive. Got {getattr(self, name)} instead.")


def train(
    model: nn.Module, data: LabelledImages, test: LabelledImages, folder: str | Path, recipe: Recipe | None = None
) -> nn.Module:
    """Train ``model`` in place, leaving ``folder/last.pt`` after every epoch and resuming from it."""
    recipe = recipe or Recipe()
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    keep_large_blocks()
    model = model.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    decayed = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": recipe.decay}, {"params": rest, "weight_decay": 0.0}]
    optimiser = torch.optim.SGD(groups, lr=recipe.rate, momentum=recipe.momentum, nesterov=True)
    first = _resume(folder / "last.pt", model, optimiser, recipe)
    for epoch in range(first, recipe.epochs):
        start = time.perf_counter()
        loss = _epoch(model, optimiser, data, recipe, epoch)
        accuracy = evaluate(model, test)
        _keep(folder / "last.pt", model, optimiser, recipe, epoch + 1)
        minutes = (time.perf_counter() - start) / 60
        line = f"epoch {epoch + 1}/{recipe.epochs}  loss {loss:.4f}  test {accuracy:.2f} %  {minutes:.1f} min"
        tqdm.write(line)
        with (folder / "log.txt").open("a") as log:
            log.write(line + "\n")
    return model.eval()


def _epoch(
    model: nn.Module, optimiser: torch.optim.Optimizer, data: LabelledImages, recipe: Recipe, epoch: int
) -> float:
    model.train()
    generator = torch.Generator().manual_seed(recipe.seed * 1000 + epoch)
    order = torch.randperm(len(data), generator=generator).split(recipe.batch)
    order = [rows for rows in order if len(rows) > 1]
    total = 0.0
    for step, rows in enumerate(tqdm(order, desc=f"epoch {epoch + 1}", disable=None, leave=False)):
        rate = recipe.rate * _schedule(epoch + step / len(order), recipe)
        for group in optimiser.param_groups:
            group["lr"] = rate
        images = augment(normalise(data.images[rows]), generator).contiguous(memory_format=torch.channels_last)
        loss = F.cross_entropy(model(images), data.labels[rows], label_smoothing=recipe.smoothing)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        total += loss.item()
    return total / len(order)


def _schedule(epoch: float, recipe: Recipe) -> float:
    """Share of the top rate at a fractional epoch: a short linear rise, then a linear fall to zero."""
    if epoch < recipe.warmup:
        return max(epoch / recipe.warmup, 0.02)
    return (recipe.epochs - epoch) / (recipe.epochs - recipe.warmup)


def augment(images: Tensor, generator: torch.Generator) -> Tensor:
    """Flip half of the images [n, c, h, w] and shift each by up to 4 pixels over zero padding."""
    n, _, h, w = images.shape
    flip = torch.rand(n, generator=generator) < 0.5
    images = torch.where(flip.view(-1, 1, 1, 1), images.flip(3), images)
    padded = F.pad(images, (4, 4, 4, 4)).permute(0, 2, 3, 1)  # [n, h+8, w+8, c]
    top, left = torch.randint(0, 9, (2, n, 1, 1), generator=generator)
    rows, columns = top + torch.arange(h).view(1, -1, 1), left + torch.arange(w).view(1, 1, -1)
    return padded[torch.arange(n).view(-1, 1, 1), rows, columns].permute(0, 3, 1, 2)


@torch.no_grad()
def evaluate(model: nn.Module, data: LabelledImages, batch: int = 500) -> float:
    """Top-1 accuracy in percent on CIFAR-style images."""
    mode = model.training
    model.eval()
    hits = 0
    for start in range(0, len(data), batch):
        part = data[slice(start, start + batch)]
        images = normalise(part.images).contiguous(memory_format=torch.channels_last)
        hits += int((model(images).argmax(1) == part.labels).sum())
    model.train(mode)
    return 100 * hits / len(data)


def _keep(path: Path, model: nn.Module, optimiser: torch.optim.Optimizer, recipe: Recipe, epoch: int) -> None:
    state = {
        "model": model.state_dict(),
        "optimiser": optimiser.state_dict(),
        "recipe": asdict(recipe),
        "epoch": epoch,
    }
    torch.save(state, path.with_suffix(".tmp"))
    os.replace(path.with_suffix(".tmp"), path)


def _resume(path: Path, model: nn.Module, optimiser: torch.optim.Optimizer, recipe: Recipe) -> int:
    if not path.exists():
        return 0
    try:
        state = torch.load(path, weights_only=True)
        found, weights, moments, epoch = (state[k] for k in ("recipe", "model", "optimiser", "epoch"))
    except Exception as problem:
        raise LdrfError(f"'{path}' is not a readable training checkpoint: delete it to start anew.") from problem
    if found != asdict(recipe):
        raise LdrfError(
            f"'{path}' was trained with {found}, not {asdict(recipe)}: "
            "use the same settings to resume, or another folder to start anew."
        )
    try:
        model.load_state_dict(weights)
        optimiser.load_state_dict(moments)
    except (RuntimeError, ValueError) as problem:
        raise LdrfError(f"'{path}' belongs to another network: use another folder to start anew.") from problem
    return epoch


def save_weights(state: Mapping[str, Tensor], path: Path) -> None:
    """Write a state dict as safetensors, matrices and kernels in half precision, vectors as they are."""
    half = {k: (t.half() if t.is_floating_point() and t.ndim > 1 else t).contiguous() for k, t in state.items()}
    save_file(half, path.with_suffix(".tmp"))
    os.replace(path.with_suffix(".tmp"), path)
