"""A layer's input as the rows of a matrix, and the sums over rows its least-squares problem needs."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ldrf.errors import LdrfError
from ldrf.processes import count, sum_all, sum_over
from ldrf.tracing import Layer

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
    pick = lambda image: np.random.default_rng((seed % 2**32, image)).choice(rows, limit, False, shuffle=False)  # noqa: E731
    picked = np.stack([pick(image) for image in images])
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


@dataclass(frozen=True)
class Moments:
    """Sums over rows of inputs X (with a constant column) and targets T, in float64."""

    gram: Tensor  # X^T X  [d + 1, d + 1]
    cross: Tensor  # X^T T  [d + 1, o]
    power: Tensor  # sum of T^2 per output [o]
    rows: int = 0
    few: Tensor | None = None  # X itself [rows, d + 1] where it has far fewer rows than columns, and is cheaper to use

    @classmethod
    def of_gram(cls, gram: Tensor) -> "Moments":
        """Sums of inputs alone, without targets."""
        nothing = gram.new_zeros(len(gram), 0)
        return cls(gram, nothing, nothing.sum(0), round(float(gram[-1, -1])))

    def over_processes(self) -> "Moments":
        """The sums over the rows of all processes."""
        if count() == 1:
            return self
        gram, cross, power = (sum_over(part) for part in (self.gram, self.cross, self.power))
        return Moments(gram, cross, power, round(float(gram[-1, -1])))

    def times(self, solution: Tensor) -> Tensor:
        """X^T X times ``solution`` [d + 1, o]."""
        return self.gram @ solution if self.few is None else self.few.T @ (self.few @ solution)

    def error(self, solution: Tensor) -> float:
        """Sum of squared residuals of ``solution`` [d + 1, o] over all rows."""
        fitted = (solution * self.times(solution)).sum() - 2 * (solution * self.cross).sum()
        return max(float(fitted + self.power.sum()), 0.0)

    def variance(self) -> float:
        """Sum of squares of the targets about their mean."""
        return max(float(self.power.sum() - self.cross[-1].square().sum() / max(self.rows, 1)), 1e-30)

    def columns(self, kept: Tensor) -> "Moments":
        """The same sums for a subset of input columns (the constant stays)."""
        index = torch.cat([kept, torch.tensor([len(self.gram) - 1])])
        few = None if self.few is None else self.few[:, index]
        return Moments(self.gram[index][:, index], self.cross[index], self.power, self.rows, few)


class RowSums:
    """:class:`Moments` in the making: products in float32, sums in float64, some hundred rows at a time."""

    def __init__(self, inputs: int, outputs: int = 0) -> None:
        zeros = lambda *shape: torch.zeros(*shape, dtype=torch.float64)  # noqa: E731
        self._gram, self._cross, self._power = zeros(inputs + 1, inputs + 1), zeros(inputs + 1, outputs), zeros(outputs)
        self._waiting: list[tuple[Tensor, Tensor]] = []
        self._few: Tensor | None = None

    def add(self, x: Tensor, t: Tensor | None = None) -> None:
        """Add rows x [r, d] and their targets t [r, o]."""
        self._waiting.append((x, x.new_zeros(len(x), 0) if t is None else t))
        # A wide matrix is costly to add to: the more columns, the more rows are worth waiting for.
        if 4 * sum(len(x) for x, _ in self._waiting) >= x.shape[1]:
            self._sum_up()

    def moments(self) -> Moments:
        """The sums over all rows so far."""
        self._sum_up()
        for rows, columns in _block_pairs(len(self._gram) - 1):
            if rows != columns:
                self._gram[columns, rows] = self._gram[rows, columns].T
        return Moments(self._gram, self._cross, self._power, round(float(self._gram[-1, -1])), self._few)

    def _sum_up(self) -> None:
        if not self._waiting:
            return
        x, t = (torch.cat([pair[i] for pair in self._waiting]) for i in (0, 1))
        self._waiting = []
        d = x.shape[1]
        first = not self._gram[d, d]
        self._few = torch.cat([x, x.new_ones(len(x), 1)], 1).double() if first and 8 * len(x) < d else None
        for rows, columns in _block_pairs(d):  # the lower half is its mirror
            self._gram[rows, columns] += x[:, rows].T @ x[:, columns]
        sums = x.sum(0, dtype=torch.float64)
        self._gram[d, :d] += sums
        self._gram[:d, d] += sums
        self._gram[d, d] += len(x)
        self._cross[:d] += x.T @ t
        self._cross[d] += t.sum(0, dtype=torch.float64)
        self._power += t.double().square().sum(0)


def input_moments(sums: Mapping[str, RowSums]) -> dict[str, Moments]:
    """The sums of inputs alone over all processes, some of which may have had no rows of that name."""
    found = {name: own.moments() for name, own in sums.items()}
    if count() == 1:
        return found
    return {name: Moments.of_gram(gram) for name, gram in sum_all({n: m.gram for n, m in found.items()}).items()}


def _block_pairs(size: int, block: int = 768) -> list[tuple[slice, slice]]:
    """The upper half of a square matrix in blocks of rows and columns."""
    parts = [slice(start, min(start + block, size)) for start in range(0, size, block)]
    return [(rows, columns) for i, rows in enumerate(parts) for columns in parts[i:]]


def least_squares(moments: Moments, start: Tensor, damping: float, constant: bool = True) -> Tensor:
    """The solution [d + 1, o] of the damped normal equations, pulled towards ``start`` where rows say nothing.

    min ||T - X B||^2 + damping * tr(X^T X)/d * ||B - start||^2; without ``constant`` the last row stays as
    it is.
    """
    return next(least_squares_at(moments, start, (damping,), constant))


def least_squares_at(
    moments: Moments, start: Tensor, dampings: Iterable[float], constant: bool = True
) -> Iterator[Tensor]:
    """:func:`least_squares` for each of several dampings."""
    d = len(moments.gram) - 1
    used = d + 1 if constant else d
    residual = (moments.cross - moments.times(start))[:used]
    for damping in dampings:
        solution = start.clone()
        if moments.few is None:
            system = moments.gram[:used, :used].clone()
            system[-1, -1] += 1e-9 * max(float(system[-1, -1]), 1.0) if constant else 0.0
            solution[:used] += torch.cholesky_solve(residual, damped_factor(system, damping))
        else:
            solution[:used] += damped_inverse(moments.few[:, :used], damping, residual)
        yield solution


def damped_inverse(x: Tensor, damping: float, right: Tensor | None = None) -> Tensor:
    """(X^T X + level I)^-1, or its product with ``right``, of few rows x [r, d]; ``level`` as in :func:`damped_factor`.

    Woodbury: (X^T X + level I)^-1 = (I - X^T (X X^T + level I)^-1 X) / level takes no more than an r x r system.
    """
    level = max(damping, 1e-10) * max(float(x.square().sum() / x.shape[1]), 1e-12)
    inner = x @ x.T
    inner.diagonal()[:] += level
    factor = damped_factor(inner, 0.0)
    if right is not None:
        return (right - x.T @ torch.cholesky_solve(x @ right, factor)) / level
    half = torch.linalg.solve_triangular(factor, x, upper=False)
    found = (half.T @ half).neg_()
    found.diagonal()[:] += 1
    return found.div_(level)


def damped_factor(system: Tensor, damping: float) -> Tensor:
    """Cholesky factor of a symmetric matrix plus ``damping`` of its mean diagonal, raised until it is definite.

    Fewer rows than columns and neurons that never fire leave a Gram matrix singular; the damping mends that.
    """
    size = max(float(system.diagonal().abs().mean()), 1e-12)
    level = damping * size
    while level < 1e12 * size:
        damped = system.clone()
        damped.diagonal()[:] += level
        factor, failed = torch.linalg.cholesky_ex(damped)
        if not int(failed) and bool(torch.isfinite(factor).all()):
            return factor
        level = max(10 * level, 1e-14 * size)
    raise LdrfError("The sums of squares of a layer's inputs overflow: its activations are too large to be pruned.")
