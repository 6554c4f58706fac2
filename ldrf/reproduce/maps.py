"""Feature maps of one image (Fig. 6): taken from a network, made fit to look at, and kept as text in JSON."""

import base64
import math
import zlib
from typing import Any

import torch
from torch import Tensor, nn

from ldrf.runtime.device import model_device


@torch.inference_mode()
def output_of(model: nn.Module, module: str, image: Tensor) -> Tensor:
    """Output [channels, h, w] of a module inside ``model``."""
    seen: list[Tensor] = []
    hook = model.get_submodule(module).register_forward_hook(lambda *call: seen.append(call[-1].clone()))
    try:
        model(image.to(model_device(model)))
    finally:
        hook.remove()
    return seen[0][0].cpu()


def enhanced(maps: Tensor) -> Tensor:
    """Maps [channels, h, w] each scaled to its own maximum, the faint parts raised, as the paper's Fig. 6 does."""
    return (maps / maps.amax((1, 2), keepdim=True).clamp_min(1e-12)).clamp_min(0).sqrt()


def pack(maps: Tensor) -> dict[str, Any]:
    """Maps [channels, h, w] from 0 to 1 as text, a byte a value."""
    raw = (255 * maps.clamp(0, 1)).round().to(torch.uint8).contiguous()
    return {"shape": list(raw.shape), "zlib": base64.b64encode(zlib.compress(raw.numpy().tobytes(), 9)).decode()}


def unpack(text: dict[str, Any]) -> Tensor:
    """The maps that :func:`pack` made text of, uint8 [channels, h, w]."""
    shape = [int(size) for size in text["shape"]]
    raw = zlib.decompressobj().decompress(base64.b64decode(text["zlib"]), math.prod(shape))  # no more than is said
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(shape)
