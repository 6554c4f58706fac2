"""Rows of a matrix that are far larger than the others, scaled down so that least squares does not serve them alone.

Language models give their first token values a hundred times as large as all others, and the norm that follows divides
them away again. Of such rows, a few hold nearly all of the squares in a sum.
"""

import torch
from torch import Tensor

LARGE = 100.0  # times the median of the rows' sums of squares, above which a row is scaled down to that


def row_factors(value: Tensor, dim: int = -1) -> Tensor | None:
    """A factor for each row, whose entries lie along ``dim``: 1, and less for large rows; None where there are none."""
    squares = torch.linalg.vector_norm(value.detach(), dim=dim, keepdim=True, dtype=torch.float32).square()
    limit = LARGE * squares.median() if squares.numel() else squares.sum()
    if not float(limit) > 0 or not bool((squares > limit).any()):
        return None
    return (limit / squares.clamp_min(1e-30)).clamp_max(1).sqrt()
