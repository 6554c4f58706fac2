"""What a unit sees in one image, dense and slim: the paper's Fig. 6 as small pictures for the report."""

import base64
import io
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ldrf.inputs import Inputs
from ldrf.result import PruneResult
from ldrf.runtime.device import model_device

COLUMNS = 8  # maps a line
MOST = 64  # maps shown of each network
SIDE = 32  # pixels of a map at most
PICTURE = 96  # pixels of the image itself at most
NORMS = (nn.modules.batchnorm._BatchNorm,)
ACTIVATIONS = (nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.PReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Hardswish, nn.Tanh, nn.Sigmoid)


def feature_maps(dense: nn.Module, result: PruneResult, example: Inputs) -> dict[str, Any] | None:
    """Maps of the first cut unit that has any, of both networks on the first image of ``example``, ready for JSON."""
    one = example.first(1)
    cut = [name for name, width in result.widths.items() if width < result.full_widths[name]]
    before = _outputs(dense, cut, one)
    unit = next((n for n in cut if n in before and _has_maps(before[n][1])), None)
    after = _outputs(result.model, cut, one)
    if unit is None or unit not in after:
        return None
    behind, maps = before[unit]
    return {
        "unit": unit,
        "behind": behind,
        "image": _picture(one.tensors()[0]),
        "dense": _sheet(maps[0]),
        "slim": _sheet(after[unit][1][0]),
    }


def _has_maps(output: Tensor) -> bool:
    return output.ndim == 4 and min(output.shape[2:]) > 1


@torch.no_grad()
def _outputs(model: nn.Module, units: Iterable[str], inputs: Inputs) -> dict[str, tuple[str, Tensor]]:
    """Each unit's output behind the norm and activation modules that directly follow it, with the last one's name."""
    wanted, maps = set(units), {}
    latest: dict[str, Tensor] = {}  # the very tensor that the next module of a chain takes

    def watch(name: str, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        follows = isinstance(module, NORMS + ACTIVATIONS) and args
        owner = name if name in wanted else next((u for u, t in latest.items() if follows and args[0] is t), None)
        if owner is not None and isinstance(output, Tensor):
            latest[owner] = output
            maps[owner] = name, output.float().cpu().clone()  # later code may change the tensor in place

    def hook(name: str) -> Any:
        return lambda module, args, output: watch(name, module, args, output)

    handles = [module.register_forward_hook(hook(name)) for name, module in model.named_modules()]
    try:
        inputs.to(model_device(model)).call(model)
    finally:
        for handle in handles:
            handle.remove()
    return maps


def _sheet(maps: Tensor) -> dict[str, Any]:
    """Maps [n, h, w] side by side as one grey picture, each stretched to its own range and brightened."""
    shown = _shrunk(maps[:MOST], SIDE)
    low, high = shown.amin((1, 2), keepdim=True), shown.amax((1, 2), keepdim=True)
    grey = ((shown - low) / (high - low).clamp_min(1e-12)).sqrt() * 255  # the paper's "non-linearly enhanced"
    n, h, w = grey.shape
    pixels = np.zeros((math.ceil(n / COLUMNS) * (h + 1) - 1, COLUMNS * (w + 1) - 1, 2), np.uint8)  # gaps see-through
    for i, tile in enumerate(grey.round().to(torch.uint8).numpy()):
        y, x = i // COLUMNS * (h + 1), i % COLUMNS * (w + 1)
        pixels[y : y + h, x : x + w, 0], pixels[y : y + h, x : x + w, 1] = tile, 255
    return {"png": _png(pixels), "maps": len(maps), "shown": n}


def _picture(images: Tensor) -> str | None:
    """The first of ``images`` [b, 3 or 1, h, w], stretched to its own range, or None where that is no picture."""
    if images.ndim != 4 or images.shape[1] not in (1, 3) or not images.is_floating_point():
        return None
    image = _shrunk(images[0].float().cpu(), PICTURE)
    pixels = (image - image.min()) / (image.max() - image.min()).clamp_min(1e-12) * 255
    return _png(pixels.round().to(torch.uint8).permute(1, 2, 0).expand(-1, -1, 3).numpy())


def _shrunk(maps: Tensor, side: int) -> Tensor:
    """Maps [n, h, w] averaged down so that the longer side has at most ``side`` pixels."""
    scale = max(*maps.shape[1:], side) / side
    h, w = (max(1, round(size / scale)) for size in maps.shape[1:])
    return F.adaptive_avg_pool2d(maps, (h, w))


def _png(pixels: np.ndarray) -> str:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(file, "png", optimize=True)
    return base64.b64encode(file.getvalue()).decode()
