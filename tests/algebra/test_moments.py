"""Rows and their sums against convolutions and torch.linalg.lstsq."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from ldrf.algebra.moments import RowSums, damped_factor, least_squares
from ldrf.tracing.layer import Layer, transposed_kernel
from ldrf.tracing.patches import count_rows, input_rows, output_rows, sample_positions


def layer_of(weight, kernel=(), stride=(), padding=(), dilation=(), positions=1) -> Layer:
    return Layer(
        name="it",
        node="it",
        weight="it.weight",
        bias=None,
        norm=None,
        kernel=tuple(kernel),
        stride=tuple(stride),
        padding=tuple(padding),
        dilation=tuple(dilation),
        groups=1,
        inputs=weight.shape[1],
        outputs=weight.shape[0],
        positions=positions,
    )


@given(data=st.data(), dims=st.integers(1, 3), channels=st.integers(1, 3), seed=st.integers(0, 999))
def test_rows_times_matrix_is_the_convolution(data, dims, channels, seed):
    torch.manual_seed(seed)
    draw = lambda low, high: tuple(data.draw(st.integers(low, high)) for _ in range(dims))  # noqa: E731
    kernel, stride, padding, dilation = draw(1, 3), draw(1, 3), draw(0, 2), draw(1, 2)
    extents = [d * (k - 1) + 1 + data.draw(st.integers(0, 3)) for k, d in zip(kernel, dilation, strict=True)]
    x, weight = torch.randn(2, channels, *extents), torch.randn(4, channels, *kernel)
    y = (F.conv1d, F.conv2d, F.conv3d)[dims - 1](x, weight, None, stride, padding, dilation)
    layer = layer_of(weight, kernel, stride, padding, dilation, math.prod(y.shape[2:]))
    rows = input_rows(layer, x, None) @ weight.flatten(1).T
    torch.testing.assert_close(rows, output_rows(layer, y, None), rtol=1e-4, atol=1e-4)
    picked = torch.randperm(len(rows))[:3].sort().values
    torch.testing.assert_close(input_rows(layer, x, picked) @ weight.flatten(1).T, rows[picked], rtol=1e-4, atol=1e-4)
    assert torch.equal(output_rows(layer, y, picked), output_rows(layer, y, None)[picked])


@given(data=st.data(), dims=st.integers(1, 3), seed=st.integers(0, 999))
def test_rows_times_turned_matrix_is_the_transposed_convolution(data, dims, seed):
    torch.manual_seed(seed)
    draw = lambda low, high: tuple(data.draw(st.integers(low, high)) for _ in range(dims))  # noqa: E731
    kernel, stride, dilation, extents = draw(1, 3), draw(1, 3), draw(1, 2), draw(1, 4)
    reach = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    padding = tuple(
        data.draw(st.integers(0, min(r, (n - 1) * s // 2))) for r, n, s in zip(reach, extents, stride, strict=True)
    )
    extra = tuple(data.draw(st.integers(0, max(s, d) - 1)) for s, d in zip(stride, dilation, strict=True))
    x, weight = torch.randn(2, 3, *extents), torch.randn(3, 4, *kernel)
    back = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[dims - 1]
    y = back(x, weight, None, stride, padding, extra, 1, dilation)
    plain = transposed_kernel(weight)
    geometry = {"is_transposed": True, "output_padding": extra}
    layer = replace(layer_of(plain, kernel, stride, padding, dilation, math.prod(y.shape[2:])), **geometry)
    rows = input_rows(layer, x, None) @ plain.flatten(1).T
    torch.testing.assert_close(rows, output_rows(layer, y, None), rtol=1e-4, atol=1e-4)
    assert torch.equal(transposed_kernel(plain), weight)


def test_patches_are_those_of_unfold():
    x, weight = torch.randn(2, 3, 6, 7), torch.randn(4, 3, 3, 2)
    layer = layer_of(weight, (3, 2), (2, 1), (1, 0), (1, 2))
    expected = F.unfold(x, (3, 2), (1, 2), (1, 0), (2, 1)).transpose(1, 2).reshape(-1, 18)
    assert torch.equal(input_rows(layer, x, None), expected)


def test_rows_of_a_linear_layer_are_its_tokens():
    x, weight = torch.randn(3, 5, 4), torch.randn(6, 4)
    layer = layer_of(weight, positions=5)
    torch.testing.assert_close(input_rows(layer, x, None) @ weight.T, output_rows(layer, F.linear(x, weight), None))
    assert torch.equal(input_rows(layer, x, torch.tensor([7])), x[1, 2][None])
    assert count_rows(layer, x) == count_rows(layer, x.transpose(0, 1)) == 15


def test_positions_are_sampled_without_repeats_and_repeatably():
    sample = lambda images, seed=3: sample_positions(50 * len(images), images, 6, seed)  # noqa: E731
    found = sample(range(10))
    assert found is not None and len(found) == 60 == len(found.unique())
    assert torch.equal(found // 50, torch.arange(10).repeat_interleave(6))
    assert torch.equal(found, sample(range(10))) and not torch.equal(found, sample(range(10), seed=4))
    assert sample_positions(500, range(10), 50, 3) is None


def test_the_positions_of_an_image_are_the_same_whatever_it_comes_with():
    whole, part = (sample_positions(50 * len(r), r, 6, -1) for r in (range(10), range(4, 7)))
    assert whole is not None and part is not None and torch.equal(part, whole[24:42] - 200)
    windows = sample_positions(600, range(4, 7), 120, 0)  # four entries of 50 positions an image
    assert windows is not None and windows.max() < 600
    assert torch.equal(windows // 200, torch.arange(3).repeat_interleave(120))


def problem(rows, columns, outputs, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, columns, generator=generator)
    t = (
        x @ torch.randn(columns, outputs, generator=generator)
        + 0.5 * torch.randn(rows, outputs, generator=generator)
        + 1
    )
    sums = RowSums(columns, outputs)
    for part in range(0, rows, 7):
        sums.add(x[part : part + 7], t[part : part + 7])
    return sums.moments(), torch.cat([x, torch.ones(rows, 1)], 1).double(), t.double()


@given(columns=st.integers(1, 6), outputs=st.integers(1, 4), seed=st.integers(0, 99))
def test_least_squares_is_lstsq(columns, outputs, seed):
    moments, x, t = problem(60, columns, outputs, seed)
    expected = torch.linalg.lstsq(x, t).solution
    found = least_squares(moments, torch.zeros_like(expected), 1e-9)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert moments.error(found) == pytest.approx(float((t - x @ found).square().sum()), rel=1e-4)
    assert moments.error(torch.randn_like(found)) > moments.error(found)


@given(columns=st.integers(30, 60), rows=st.integers(1, 3), constant=st.booleans(), seed=st.integers(0, 99))
def test_few_rows_give_what_their_sums_give(columns, rows, constant, seed):
    few, _, _ = problem(rows, columns, 3, seed)
    sums = replace(few, few=None)
    assert few.few is not None and few.few.shape == (rows, columns + 1)
    start = torch.randn(columns + 1, 3, generator=torch.Generator().manual_seed(seed)).double()
    one, other = (least_squares(m, start, 1e-2, constant) for m in (few, sums))
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    assert few.error(start) == pytest.approx(sums.error(start), rel=1e-6)
    half, part = torch.arange(0, columns, 2), start[: (columns + 1) // 2 + 1]
    one, other = (m.columns(half).times(part) for m in (few, sums))
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("columns", [4, 1700])
def test_moments_are_the_dense_sums(columns):
    moments, x, t = problem(30, columns, 2)
    torch.testing.assert_close(moments.gram, x.T @ x, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(moments.cross, x.T @ t, rtol=1e-5, atol=1e-3)
    assert moments.rows == 30
    assert moments.variance() == pytest.approx(float((t - t.mean(0)).square().sum()), rel=1e-5)
    kept = torch.tensor([0, 2])
    part = moments.columns(kept)
    left = [0, 2, columns]
    torch.testing.assert_close(part.gram, (x.T @ x)[left][:, left], rtol=1e-5, atol=1e-5)


def test_damping_pulls_towards_the_start():
    moments, x, t = problem(40, 5, 3)
    start = torch.randn(6, 3, dtype=torch.float64)
    free, held = least_squares(moments, start, 1e-9), least_squares(moments, start, 1e6)
    torch.testing.assert_close(held, start, rtol=1e-3, atol=1e-3)
    between = least_squares(moments, start, 1.0)
    assert (free - start).norm() > (between - start).norm() > (held - start).norm()


def test_fewer_rows_than_columns_keep_the_start_where_rows_say_nothing():
    moments, x, t = problem(4, 9, 2)
    start = torch.randn(10, 2, dtype=torch.float64)
    found = least_squares(moments, start, 1e-3)
    assert torch.isfinite(found).all()
    assert moments.error(found) < 1e-2 * moments.error(start)
    blind = torch.linalg.svd(x, full_matrices=True).Vh[4:]  # directions no row has
    torch.testing.assert_close(blind @ found, blind @ start, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("matrix", [torch.zeros(3, 3), torch.ones(3, 3), -torch.eye(3)])
def test_the_factor_of_a_matrix_that_is_not_definite_is_finite(matrix):
    factor = damped_factor(matrix.double(), 1e-8)
    assert torch.isfinite(factor).all() and (factor.diagonal() > 0).all()


def test_rows_with_factors_count_as_rows_that_were_scaled_with_their_constant() -> None:
    x, t, factors = torch.randn(50, 4), torch.randn(50, 3), torch.rand(50, 1)
    sums = RowSums(4, 3)
    sums.add(x[:20], t[:20], factors[:20])
    sums.add(x[20:], t[20:], factors[20:])
    moments = sums.moments()
    whole = torch.cat([x, torch.ones(50, 1)], 1) * factors
    assert torch.allclose(moments.gram.float(), whole.T @ whole, atol=1e-4)
    assert torch.allclose(moments.cross.float(), whole.T @ (t * factors), atol=1e-4)


def test_about_zero_forgets_the_mean_and_nothing_else() -> None:
    sums = RowSums(4)
    sums.add(torch.randn(50, 4) + 3)
    moments = sums.moments()
    other = moments.about_zero()
    assert (other.gram[:4, 4] == 0).all() and (moments.gram[:4, 4] != 0).all()
    assert torch.equal(other.gram[:4, :4], moments.gram[:4, :4]) and other.rows == moments.rows
