"""Where the channels of images lie in memory: last, as convolutions are faster so, unless a model can't have it."""

from collections.abc import Sequence

import torch
from torch import nn

from ldrf.inputs import Inputs

SAFE = 8  # inputs of a strided 1x1 convolution from which torch 2.13 writes where it should, on the way back


def layout_for(model: nn.Module, example: Inputs) -> torch.memory_format:
    """Channels last if ``model`` can be trained so on such inputs, else torch's usual order."""
    if any(_is_unsafe(module) for module in model.modules()):
        return torch.contiguous_format
    try:
        with torch.no_grad():
            arranged(example, torch.channels_last).call(model)
    except Exception:  # such as a view of a map as a vector; if it has another reason, the usual order shows it
        return torch.contiguous_format
    return torch.channels_last


def arranged(inputs: Inputs, layout: torch.memory_format) -> Inputs:
    """The inputs with all images [n, c, h, w] in this layout."""
    return inputs.map(lambda t: t.contiguous(memory_format=layout) if t.ndim == 4 else t)


def lay_out(model: nn.Module, layout: torch.memory_format) -> nn.Module:
    """The model itself, its convolutions in this layout."""
    return model.to(memory_format=layout)  # pyright: ignore[reportCallIssue]


def is_safe(kernel: Sequence[int], stride: Sequence[int], channels: int) -> bool:
    """Whether torch keeps to its memory in the backward pass of such a convolution with channels last."""
    return max(kernel, default=1) > 1 or max(stride, default=1) == 1 or channels >= SAFE


def _is_unsafe(module: nn.Module) -> bool:
    if not isinstance(module, nn.Conv2d):
        return False
    return not is_safe(module.kernel_size, module.stride, module.in_channels // module.groups)
