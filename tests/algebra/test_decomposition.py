"""W = Q R against dense algebra: exactness, truncation error, the data-aware optimum, normalisation, ranks."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from ldrf.algebra.decomposition import decompose, decompose_with_data, matrix_of, normalise_embedding, rank_at
from ldrf.algebra.moments import Moments, RowSums
from ldrf.errors import LdrfError
from ldrf.planning.split_network import decomposed_copy
from ldrf.tracing.interpreter import read_tensor

SHAPES = [(6, 3, 3, 3), (40, 3, 3, 3), (5, 8), (8, 5)]


def _weight(shape: tuple[int, ...], seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(shape, generator=generator, dtype=torch.float64)
    return weight, torch.randn(shape[0], generator=generator, dtype=torch.float64)


def _inputs(columns: int, rows: int = 200) -> Tensor:
    """Correlated rows [rows, d] with a mean, so that data and weight disagree on what matters."""
    generator = torch.Generator().manual_seed(1)
    mix = torch.randn(columns, columns, generator=generator, dtype=torch.float64)
    scales = torch.logspace(0, -2, columns, dtype=torch.float64)
    return torch.randn(rows, columns, generator=generator, dtype=torch.float64) @ (scales[:, None] * mix) + 0.5


def _moments(x: Tensor) -> Moments:
    sums = RowSums(x.shape[1])
    sums.add(x)
    return sums.moments()


@pytest.mark.parametrize("shape", SHAPES)
def test_full_rank_gives_the_weight_back(shape):
    weight, bias = _weight(shape)
    matrix, constant = decompose(weight, bias).recomposed()
    torch.testing.assert_close(matrix, weight.flatten(1).T)
    torch.testing.assert_close(constant, bias)


@pytest.mark.parametrize("shape", SHAPES)
def test_truncation_loses_the_cut_squared_singular_values(shape):
    weight, _ = _weight(shape)
    values = torch.linalg.svdvals(weight.flatten(1))
    for rank in range(1, len(values) + 1):
        parts = decompose(weight, None, rank)
        assert parts.rank == rank and len(parts.spectrum) == len(values)
        lost = (matrix_of(weight) - parts.recomposed()[0]).square().sum()
        torch.testing.assert_close(lost, values[rank:].square().sum(), atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("shape", SHAPES)
def test_data_aware_is_no_worse_on_data_at_every_rank(shape):
    weight, bias = _weight(shape)
    matrix = matrix_of(weight)
    x = _inputs(len(matrix))
    y, moments = x @ matrix + bias, _moments(x)
    better = 0
    for rank in range(1, min(matrix.shape) + 1):
        errors = []
        for parts in (decompose_with_data(weight, bias, moments, rank), decompose(weight, bias, rank)):
            product, constant = parts.recomposed()
            errors.append(float((x @ product + constant - y).square().sum() / y.square().sum()))
        assert errors[0] <= errors[1] + 1e-10
        better += errors[0] < 0.9 * errors[1]
    assert better and errors[0] == pytest.approx(0, abs=1e-10)


def test_data_aware_error_is_the_cut_part_of_its_spectrum():
    weight, bias = _weight((6, 9))
    x = _inputs(9)
    y = x @ weight.T + bias
    for rank in range(1, 7):
        parts = decompose_with_data(weight, bias, _moments(x), rank)
        product, constant = parts.recomposed()
        lost = (x @ product + constant - y).square().sum() / len(x)
        torch.testing.assert_close(lost, parts.spectrum[rank:].square().sum(), atol=1e-8, rtol=1e-6)


@pytest.mark.parametrize("rank", [None, 3])
def test_normalising_keeps_the_layer_and_gives_mean_0_variance_1(rank):
    weight, bias = _weight((6, 9))
    x = _inputs(9)
    parts = decompose(weight, bias, rank)
    embedded = x @ parts.embedding + parts.embedding_bias
    normal = normalise_embedding(parts, embedded.mean(0), embedded.var(0, correction=0))
    made = x @ normal.embedding + normal.embedding_bias
    torch.testing.assert_close(made.mean(0), torch.zeros_like(made[0]), atol=1e-9, rtol=0)
    torch.testing.assert_close(made.var(0, correction=0), torch.ones_like(made[0]))
    before = embedded @ parts.transformation + parts.transformation_bias
    torch.testing.assert_close(made @ normal.transformation + normal.transformation_bias, before)


def test_a_component_that_never_varies_keeps_its_scale():
    weight, bias = _weight((4, 5))
    parts = decompose(weight, bias)
    x = torch.ones(7, 5, dtype=torch.float64)
    embedded = x @ parts.embedding
    normal = normalise_embedding(parts, embedded.mean(0), embedded.var(0, correction=0))
    made = x @ normal.embedding + normal.embedding_bias
    assert torch.isfinite(normal.embedding).all()
    torch.testing.assert_close(made, torch.zeros_like(made), atol=1e-9, rtol=0)
    torch.testing.assert_close(made @ normal.transformation + normal.transformation_bias, x @ weight.T + bias)


def test_inputs_that_never_vary_have_rank_one():
    weight, bias = _weight((4, 5))
    parts = decompose_with_data(weight, bias, _moments(torch.ones(7, 5, dtype=torch.float64)), 1)
    product, constant = parts.recomposed()
    one = torch.ones(1, 5, dtype=torch.float64)
    torch.testing.assert_close(one @ product + constant, one @ weight.T + bias)
    assert rank_at(decompose(torch.zeros(4, 5), None).spectrum, 0.9) == 1


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.floats(0, 1e3, allow_subnormal=False), min_size=1, max_size=20),
    st.sampled_from([0.05, 0.3, 0.5, 0.65, 0.9, 0.99, 1.0]),
)
def test_rank_at_against_a_naive_loop(values, energy):
    values = sorted(values, reverse=True)
    reached, naive = 0.0, 0
    while naive < 1 or reached < energy * sum(values) * (1 - 1e-9):
        reached += values[naive]
        naive += 1
    exact = rank_at(torch.tensor(values, dtype=torch.float64), energy)
    # Sums differ in their last bits, so a rank that just reaches the share may fall on either side.
    assert exact == naive or abs(sum(values[:naive]) / max(sum(values), 1e-300) - energy) < 1e-8


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(3, 6, 3, stride=2, padding=1, padding_mode="reflect"),
        nn.Conv2d(3, 6, (3, 1), dilation=2, bias=False),
        nn.Conv1d(3, 40, 5),
        nn.Linear(9, 4, bias=False),
    ],
)
def test_decomposed_copy_computes_the_truncated_layer(layer):
    model = nn.Sequential(layer, nn.ReLU()).eval()
    state = torch.get_rng_state()
    x = torch.rand(2, 9) if isinstance(layer, nn.Linear) else torch.rand(2, 3, *(9,) * (layer.weight.ndim - 2))
    after_x = torch.get_rng_state()
    bias = layer.bias.detach() if layer.bias is not None else None
    whole, cut = decompose(layer.weight.detach(), bias), decompose(layer.weight.detach(), bias, 2)
    torch.testing.assert_close(decomposed_copy(model, {"0": whole})(x), model(x), atol=1e-5, rtol=1e-4)
    slim = decomposed_copy(model, {"0": cut})
    first = slim.get_submodule("0.0")
    assert model[0] is layer and read_tensor(slim, "0.0.weight").shape[0] == 2 and first.bias is None
    assert torch.equal(torch.get_rng_state(), after_x) and not torch.equal(state, after_x)
    truncated = decomposed_copy(model, {})
    with torch.no_grad():
        read_tensor(truncated, "0.weight").copy_(cut.recomposed()[0].T.reshape(layer.weight.shape))
    torch.testing.assert_close(slim(x), truncated(x), atol=1e-5, rtol=1e-4)


def test_decomposed_copy_refuses_what_has_no_cross_channel_rank():
    model = nn.Sequential(nn.Conv2d(4, 4, 3, groups=4))
    with pytest.raises(LdrfError, match="'0' is Conv2d"):
        decomposed_copy(model, {"0": decompose(read_tensor(model, "0.weight").detach(), None)})


def test_a_conv_is_its_matrix_on_patches():
    weight, bias = _weight((6, 3, 3, 3))
    x = torch.rand(2, 3, 5, 5, dtype=torch.float64)
    product, constant = decompose(weight, bias).recomposed()
    rows = F.unfold(x, 3).transpose(1, 2) @ product + constant
    torch.testing.assert_close(rows.transpose(1, 2).reshape(2, 6, 3, 3), F.conv2d(x, weight, bias))
