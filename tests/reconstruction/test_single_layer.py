"""Eqn. 2 on one layer: Q is PCA, errors mean what they say, and solving is never worse than cutting."""

import pytest
import torch
from torch import Tensor

from ldrf.errors import LdrfError
from ldrf.reconstruction.single_layer import principal_components, prune_layer


def _layer(neurons: int = 16, inputs: int = 8, rows: int = 300, copies: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """A layer whose second half repeats the first at other scales, and its inputs."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, inputs, generator=generator)
    weight = torch.randn(neurons, inputs, generator=generator)
    bias = 0.1 * torch.randn(neurons, generator=generator)
    if copies:
        half = neurons // 2
        scales = 0.3 + torch.rand(half, generator=generator)
        weight[half:], bias[half:] = weight[:half] * scales[:, None], bias[:half] * scales
    return x, weight, bias


def test_repeated_neurons_are_made_up_for():
    x, weight, bias = _layer()
    found = prune_layer(x, weight, bias, 10, steps=200)
    assert found.weight.shape == (10, 8) and found.projection.shape == (10, 16)
    assert found.error < 0.1 * found.cut_error
    y = torch.relu(x @ weight.T + bias)
    assert float((found(x) - y).square().sum() / (y - y.mean(0)).square().sum()) < 0.05


def test_the_mask_keeps_better_neurons_than_chance():
    """By the closed form alone: half of the neurons, against the mean of ten random halves."""
    x, weight, bias = _layer(neurons=24, inputs=12)
    learned = prune_layer(x, weight, bias, 12, steps=100).candidates["closed form"]
    generator = torch.Generator().manual_seed(5)
    by_chance = []
    for _ in range(10):
        order = torch.randperm(24, generator=generator)  # with no steps m stays at ones, so the first twelve are kept
        by_chance.append(prune_layer(x, weight[order], bias[order], 12, steps=0).candidates["closed form"])
    assert learned < 0.7 * sum(by_chance) / 10


@pytest.mark.parametrize("width", [1, 5, 15, 16])
@pytest.mark.parametrize("rank", [None, 4])
def test_never_worse_than_cutting(width, rank):
    x, weight, bias = _layer(copies=False)
    found = prune_layer(x, weight, bias, width, rank=rank, steps=20, rate=0.5)  # a rate that hurts
    assert found.error == min(found.candidates.values()) <= found.cut_error
    assert len(found.kept) == width and found.error == found.candidates[found.way]
    if width == 16:
        assert found.cut_error == pytest.approx(0, abs=1e-6)


def test_both_terms_add_up_to_the_error_in_y():
    x, weight, bias = _layer(copies=False)
    found = prune_layer(x, weight, bias, 10, rank=6, steps=30)
    held = x[torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:60]]
    y = torch.relu(held @ weight.T + bias)
    error = float((found(held) - y).square().sum() / (y - y.mean(0)).square().sum())
    assert found.total_error == pytest.approx(error, rel=1e-3)
    assert found.embedding_error > 0.01


def test_principal_components_against_svd():
    y = torch.relu(torch.randn(100, 6, generator=torch.Generator().manual_seed(2)))
    mean, q = principal_components(y, 3)
    values = torch.linalg.svdvals((y - y.mean(0)).double())
    torch.testing.assert_close(q.T @ q, torch.eye(3), atol=1e-5, rtol=0)
    lost = (y - mean - (y - mean) @ q @ q.T).double().square().sum()
    torch.testing.assert_close(lost, values[3:].square().sum(), rtol=1e-4, atol=1e-4)


def test_repeatable_and_inputs_untouched():
    x, weight, bias = _layer(copies=False)
    before = [t.clone() for t in (x, weight, bias)]
    first, second = (prune_layer(x, weight, None, 6, steps=15, seed=3) for _ in range(2))
    assert torch.equal(first.weight, second.weight) and torch.equal(first.projection, second.projection)
    assert all(torch.equal(a, b) for a, b in zip(before, (x, weight, bias), strict=True))


def test_dead_and_constant_neurons():
    x, weight, bias = _layer(copies=False)
    weight[3:6], bias[3:6] = 0.0, -1.0
    weight[6], bias[6] = 0.0, 1.0
    found = prune_layer(x, weight, bias, 12, steps=30)
    assert found.error < 1e-3 and not {3, 4, 5, 6} & set(found.kept.tolist())
    nothing = prune_layer(x, torch.zeros(4, 8), None, 2, steps=5)
    assert nothing.error == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"width": 0}, "'width' must be"),
        ({"width": 17}, "'width' must be"),
        ({"rank": 0}, "'rank' must be"),
        ({"x": torch.zeros(5, 3)}, "needs x"),
        ({"x": torch.zeros(1, 8)}, "At least 2 rows"),
        ({"x": torch.full((5, 8), float("nan"))}, "must be finite"),
        ({"lambda_1": 0.0}, "'lambda_1'"),
    ],
)
def test_bad_input_is_one_sentence(change, words):
    x, weight, bias = _layer()
    with pytest.raises(LdrfError, match=words):
        prune_layer(**{"x": x, "weight": weight, "bias": bias, "width": 4, "steps": 2, **change})
