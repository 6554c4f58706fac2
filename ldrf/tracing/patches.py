"""A layer's input as the rows of a matrix: the patches its kernel slides over, or a sample of them."""

import math
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ldrf.tracing.trace import Layer

COLUMNS = 16_384  # weights per output that a Gram matrix of 2 GiB can hold


def count_rows(layer: Layer, x: Tensor) -> int:
    """How many rows :func:`input_rows` finds in a layer's input."""
    return x.shape[:-1].numel() if layer.is_linear else len(x) * layer.positions


def count_columns(layer: Layer) -> int:
    """Weights per output of a layer, of which :func:`input_rows` has one column each."""
    return layer.inputs * math.prod(layer.kernel)


def sample_positions(rows: int, images: range, limit: int, seed: int) -> Tensor | None:
    """Which of so many rows of a layer's input to use, or None for all: at most ``limit`` for each image.

    What is picked for one of the numbered ``images`` depends on its number and the seed alone, not on the images it
    comes with.
    """
    rows //= len(images)
    return None if rows <= limit else _picked(rows, images, limit, seed)


@lru_cache(maxsize=4096)
def _picked(rows: int, images: range, limit: int, seed: int) -> Tensor:
    """Random rows of each image; kept, as several passes over the same images want the same."""
    generators = [np.random.default_rng((seed % 2**32, image)) for image in images]
    picked = np.stack([generator.choice(rows, limit, False, shuffle=False) for generator in generators])
    return torch.from_numpy((np.sort(picked, 1) + rows * np.arange(len(images))[:, None]).ravel())


def input_rows(layer: Layer, x: Tensor, picked: Tensor | None) -> Tensor:
    """Rows [rows, inputs * k * k] that the layer multiplies by its flattened weight."""
    if layer.is_linear:
        rows = x.reshape(-1, x.shape[-1])
        return rows if picked is None else rows[picked]
    if math.prod(layer.kernel) == 1 and not any(layer.padding) and not layer.is_transposed:
        steps = tuple(slice(None, None, s) for s in layer.stride)
        rows = x[(slice(None), slice(None), *steps)].flatten(2).transpose(1, 2).reshape(-1, x.shape[1])
        return rows if picked is None else rows[picked]
    return _patches(layer, x, picked)


def _patches(layer: Layer, x: Tensor, picked: Tensor | None) -> Tensor:
    windows, strides = _padded(layer, x)
    for dim, (k, s, d) in enumerate(zip(layer.kernel, strides, layer.dilation, strict=True)):
        windows = windows.unfold(dim + 2, d * (k - 1) + 1, s)
        windows = windows[..., ::d] if d > 1 else windows
    # windows: [examples, channels, *positions, *kernel], still a view
    spatial = len(layer.kernel)
    order = (0, *range(2, 2 + spatial), 1, *range(2 + spatial, 2 + 2 * spatial))
    windows = windows.permute(order)
    if picked is None:
        return windows.reshape(-1, math.prod(windows.shape[1 + spatial :]))
    index = torch.unravel_index(picked, windows.shape[: 1 + spatial])
    return windows[index].flatten(1)


def _padded(layer: Layer, x: Tensor) -> tuple[Tensor, tuple[int, ...]]:
    """The map a kernel slides over and its strides; a transposed convolution has zeros between the values it reads."""
    if not layer.output_padding:
        return F.pad(x, [p for pad in reversed(layer.padding) for p in (pad, pad)]), layer.stride
    spread = x.new_zeros(*x.shape[:2], *(s * (n - 1) + 1 for n, s in zip(x.shape[2:], layer.stride, strict=True)))
    spread[(slice(None), slice(None), *(slice(None, None, s) for s in layer.stride))] = x
    geometry = zip(layer.kernel, layer.dilation, layer.padding, layer.output_padding, strict=True)
    sides = [(d * (k - 1) - p, d * (k - 1) - p + extra) for k, d, p, extra in geometry]
    return F.pad(spread, [side for pair in reversed(sides) for side in pair]), (1,) * len(layer.kernel)


def output_rows(layer: Layer, y: Tensor, picked: Tensor | None) -> Tensor:
    """Rows [rows, outputs] of a layer's output, in the order of :func:`input_rows`."""
    rows = y.reshape(-1, y.shape[-1]) if layer.is_linear else y.flatten(2).transpose(1, 2).reshape(-1, y.shape[1])
    return rows if picked is None else rows[picked]
