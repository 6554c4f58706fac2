"""The LASSO on inner products against scikit-learn's on the rows themselves."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import Lasso

from ldrf.methods.shared.lasso import lasso, lasso_support

ROWS = 120


def problem(columns: int, seed: int, noise: float = 0.3) -> tuple[np.ndarray, np.ndarray]:
    """Correlated columns Z [rows, n] of unlike sizes, and a target that most of them share in."""
    random = np.random.default_rng(seed)
    z = random.normal(size=(ROWS, columns)) @ random.normal(size=(columns, columns))
    z *= random.uniform(0.2, 2, columns)
    return z, z.sum(1) + noise * random.normal(size=ROWS)


def products(z: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return z.T @ z / len(z), z.T @ t / len(z)


@given(columns=st.integers(2, 9), seed=st.integers(0, 999), share=st.sampled_from([0.01, 0.1, 0.4, 0.9]))
def test_the_coefficients_are_those_of_scikit_learn(columns, seed, share):
    z, t = problem(columns, seed)
    gram, cross = products(z, t)
    penalty = share * np.abs(cross).max()
    expected = Lasso(alpha=penalty, fit_intercept=False, tol=1e-12, max_iter=200_000).fit(z, t).coef_
    np.testing.assert_allclose(lasso(gram, cross, penalty, np.ones(columns)), expected, rtol=1e-3, atol=1e-4)


def test_the_start_does_not_matter():
    gram, cross = products(*problem(8, 3))
    penalty = 0.2 * np.abs(cross).max()
    ends = [lasso(gram, cross, penalty, start) for start in (np.zeros(8), np.ones(8), np.arange(8.0))]
    np.testing.assert_allclose(ends[1:], [ends[0]] * 2, atol=1e-5)


def test_without_penalty_it_is_least_squares():
    z, t = problem(5, 1)
    np.testing.assert_allclose(lasso(*products(z, t), 0.0, np.ones(5)), np.linalg.lstsq(z, t)[0], rtol=1e-3)


@pytest.mark.parametrize("width", [1, 4, 7, 11, 12])
def test_the_support_is_on_scikit_learns_path(width):
    """Some penalty of scikit-learn leaves exactly these columns, wherever the path has that many."""
    z, t = problem(12, 5)
    gram, cross = products(z, t)
    found = lasso_support(gram, cross, width)
    assert len(found) == width and (np.diff(found) > 0).all()
    penalties = np.geomspace(1e-5, 1, 400) * np.abs(cross).max()
    supports = [
        np.flatnonzero(Lasso(alpha=p, fit_intercept=False, tol=1e-8, max_iter=50_000).fit(z, t).coef_)
        for p in penalties[:: 4 if width < 12 else 40]
    ]
    matching = [s for s in supports if len(s) == width]
    assert not matching or any((s == found).all() for s in matching)
    assert matching or width == 12


def test_columns_without_power_go_first():
    z, t = problem(6, 2)
    z[:, [1, 4]] = 0
    assert lasso_support(*products(z, t), 4).tolist() == [0, 2, 3, 5]
    assert len(lasso_support(*products(z, t), 5)) == 5
