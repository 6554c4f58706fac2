"""Rows far larger than the others are scaled down; all others stay as they are."""

import torch

from ldrf.algebra.large_rows import LARGE, row_factors
from ldrf.algebra.moments import RowSums, least_squares


def test_rows_of_like_size_have_no_factors() -> None:
    assert row_factors(torch.randn(100, 8)) is None
    assert row_factors(torch.zeros(100, 8)) is None
    assert row_factors(torch.zeros(0, 8)) is None


def test_a_large_row_comes_down_to_the_limit() -> None:
    rows = torch.randn(101, 8)
    rows[7] *= 1000
    factors = row_factors(rows)
    assert factors is not None and factors.shape == (101, 1)
    squares = rows.square().sum(1)
    assert torch.isclose((rows * factors)[7].square().sum(), LARGE * squares.median())
    assert (factors[torch.arange(101) != 7] == 1).all()


def test_channels_of_a_map_lie_in_dimension_one() -> None:
    maps = torch.randn(2, 3, 5, 5)
    maps[1, :, 2, 2] = 1e4
    factors = row_factors(maps, 1)
    assert factors is not None and factors.shape == (2, 1, 5, 5)
    assert factors[1, 0, 2, 2] < 0.1 and int((factors < 1).sum()) == 1


def test_least_squares_serves_the_other_rows() -> None:
    """One row that no weights can explain, a thousand times as large, spoils the fit unless it is scaled down."""
    torch.manual_seed(0)
    x, true = torch.randn(4000, 6), torch.randn(6, 2)
    t = x @ true
    x[0] *= 1000
    t[0] = 1000 * torch.randn(2)
    gaps = []
    for factors in (None, row_factors(x)):
        sums = RowSums(6, 2)
        sums.add(x, t, factors)
        solution = least_squares(sums.moments(), torch.zeros(7, 2, dtype=torch.float64), 0.0)
        gaps.append(float((solution[:-1] - true).norm()))
    assert gaps[1] < 0.25 * gaps[0]
