"""A layer's input as the rows of a matrix, and the sums over rows that its least-squares problem needs."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ldrf.errors import LdrfError
from ldrf.runtime.device import CPU, exact, exact_device
from ldrf.runtime.processes import count, sum_all, sum_over


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

    def to(self, device: torch.device) -> "Moments":
        """The same sums where float64 is computed for a device: in the host's memory they may wait for their turn."""
        there = exact_device(device)
        few = None if self.few is None else self.few.to(there)
        return Moments(self.gram.to(there), self.cross.to(there), self.power.to(there), self.rows, few)

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

    def about_zero(self) -> "Moments":
        """The same sums as if the mean of the inputs were zero, for a layer that can add no constant."""
        gram = self.gram.clone()
        gram[:-1, -1], gram[-1, :-1] = 0.0, 0.0
        return replace(self, gram=gram)

    def columns(self, kept: Tensor) -> "Moments":
        """The same sums for a subset of input columns (the constant stays)."""
        index = torch.cat([kept, torch.tensor([len(self.gram) - 1])])
        few = None if self.few is None else self.few[:, index]
        return Moments(self.gram[index][:, index], self.cross[index], self.power, self.rows, few)


class RowSums:
    """Adds up :class:`Moments` of rows on a device: products in float32, sums in float64, some hundred rows at a
    time."""

    def __init__(self, inputs: int, outputs: int = 0, device: torch.device = CPU) -> None:
        made = {"dtype": torch.float64, "device": exact_device(device)}
        self._gram = torch.zeros(inputs + 1, inputs + 1, **made)
        self._cross = torch.zeros(inputs + 1, outputs, **made)
        self._power = torch.zeros(outputs, **made)
        self._waiting: list[tuple[Tensor, Tensor, Tensor]] = []
        self._few: Tensor | None = None

    def add(self, x: Tensor, t: Tensor | None = None, factors: Tensor | None = None) -> None:
        """Add rows x [r, d] and their targets t [r, o]; with ``factors`` [r, 1] rows and their constants are scaled."""
        x = _widened(x)
        t = x.new_zeros(len(x), 0) if t is None else _widened(t)
        if factors is not None:
            x, t = x * factors, t * factors
        self._waiting.append((x, t, x.new_ones(len(x), 1) if factors is None else factors.to(x.dtype)))
        # A wide matrix is costly to add to: the more columns, the more rows are worth waiting for.
        if 4 * sum(len(x) for x, _, _ in self._waiting) >= x.shape[1]:
            self._sum_up()

    def moments(self) -> Moments:
        """The sums over all rows so far."""
        self._sum_up()
        for rows, columns in _block_pairs(len(self._gram) - 1):
            if rows != columns:
                self._gram[columns, rows] = self._gram[rows, columns].T
        return Moments(self._gram, self._cross, self._power, round(float(self._gram[-1, -1])), self._few)

    def _sum_up(self) -> None:
        """Add the rows that wait to the sums."""
        if not self._waiting:
            return
        x, t, ones = (torch.cat([added[i] for added in self._waiting]) for i in range(3))
        scaled = bool((ones != 1).any())
        self._waiting = []
        d = x.shape[1]
        first = not self._gram[d, d]
        there = self._gram.device
        whole = torch.cat([x, ones], 1) if first and 8 * len(x) < d else None
        self._few = None if whole is None else exact(whole).to(there)
        for rows, columns in _block_pairs(d):  # the lower half is its mirror
            self._gram[rows, columns] += (x[:, rows].T @ x[:, columns]).to(there)
        weighted = (x * ones, t * ones) if scaled else (x, t)
        sums, goals = (part.to(there).sum(0, dtype=torch.float64) for part in weighted)
        self._gram[d, :d] += sums
        self._gram[:d, d] += sums
        self._gram[d, d] += exact(ones).square().sum().to(there)
        self._cross[:d] += (x.T @ t).to(there)
        self._cross[d] += goals
        self._power += exact(t).square().sum(0).to(there)


def _widened(rows: Tensor) -> Tensor:
    """Rows that came in half precision as float32: products of many are summed."""
    return rows.float() if rows.element_size() < 4 else rows


def input_moments(sums: Mapping[str, RowSums]) -> dict[str, Moments]:
    """The sums of inputs alone over all processes, some of which may have had no rows of that name."""
    moments = {name: own.moments() for name, own in sums.items()}
    if count() == 1:
        return moments
    return {name: Moments.of_gram(gram) for name, gram in sum_all({n: m.gram for n, m in moments.items()}).items()}


def _block_pairs(size: int, block: int = 768) -> list[tuple[slice, slice]]:
    """The upper half of a square matrix in blocks of rows and columns."""
    parts = [slice(start, min(start + block, size)) for start in range(0, size, block)]
    return [(rows, columns) for i, rows in enumerate(parts) for columns in parts[i:]]


def least_squares(moments: Moments, start: Tensor, damping: float, constant: bool = True) -> Tensor:
    """The solution [d + 1, o] of the damped normal equations, pulled towards ``start`` where rows do not determine it.

    min ||T - X B||^2 + damping * tr(X^T X)/d * ||B - start||^2; without ``constant`` the bias, the last
    row of B, stays as it is.
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
    inverse = (half.T @ half).neg_()
    inverse.diagonal()[:] += 1
    return inverse.div_(level)


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
