"""The LASSO from inner products alone: min 1/2 b^T G b - c^T b + penalty * ||b||_1, by coordinate descent."""

import math

import numpy as np

TOLERANCE = 1e-7  # of the largest correlation: how far a coordinate's optimality may be off
SWEEPS = 2000
FIRST = 1e-4  # first penalty, as a share of the one at which nothing is left
HALVINGS = 40


def lasso(gram: np.ndarray, cross: np.ndarray, penalty: float, start: np.ndarray) -> np.ndarray:
    """The coefficients [n] for G [n, n] and c [n], from ``start``; a coordinate without power stays at zero."""
    beta = np.where(gram.diagonal() > 0, start, 0.0)
    slope = cross - gram @ beta
    limit = TOLERANCE * max(float(np.abs(cross).max()), 1e-300)
    powered = np.flatnonzero(gram.diagonal() > 0)
    for _ in range(SWEEPS):
        if _sweep(gram, slope, beta, penalty, powered) <= limit:
            break
        # Most coordinates are settled at zero: work on the others until they are settled too, then look at all again.
        active = np.flatnonzero(beta)
        for _ in range(SWEEPS):
            if _sweep(gram, slope, beta, penalty, active) <= limit:
                break
    return beta


def _sweep(gram: np.ndarray, slope: np.ndarray, beta: np.ndarray, penalty: float, indices: np.ndarray) -> float:
    """Minimise over each of ``indices`` in turn, in place; returns the largest change of a gradient by its own step."""
    largest = 0.0
    # Python's own numbers: arithmetic on numpy's, one at a time, takes several times as long.
    for i, power in zip(indices.tolist(), gram.diagonal()[indices].tolist(), strict=True):
        old = beta.item(i)
        free = slope.item(i) + power * old
        new = math.copysign(max(abs(free) - penalty, 0.0), free) / power
        if new != old:
            slope -= gram[i] * (new - old)
            beta[i] = new
            largest = max(largest, power * abs(new - old))
    return largest


def lasso_support(gram: np.ndarray, cross: np.ndarray, width: int) -> np.ndarray:
    """Indices of ``width`` coordinates, ascending: the penalty is doubled until no more are left, then bisected.

    Each solution starts from the last. Where the path passes over ``width``, the largest of the coordinates that left
    in that step fill up.
    """
    high = FIRST * float(np.abs(cross).max())
    low, wide = 0.0, np.ones(len(cross))
    narrow = beta = lasso(gram, cross, high, wide)
    while np.count_nonzero(beta) > width:
        low, wide, high = high, beta, 2 * high
        narrow = beta = lasso(gram, cross, high, beta)
    for _ in range(HALVINGS):
        if np.count_nonzero(narrow) == width:
            break
        middle = (low + high) / 2
        beta = lasso(gram, cross, middle, beta)
        if np.count_nonzero(beta) > width:
            low, wide = middle, beta
        else:
            high, narrow = middle, beta
    size = np.abs(wide) * np.sqrt(gram.diagonal().clip(min=0))
    order = np.lexsort((-size, narrow == 0))  # those that are left first, then by size
    return np.sort(order[:width])
