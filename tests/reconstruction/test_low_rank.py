"""Values of attention, solved by the SVD of each head's product."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false
# pyright: reportOptionalMemberAccess=false, reportGeneralTypeIssues=false

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ldrf
from ldrf.reconstruction.low_rank import truncated_product

WIDTH, HEADS = 12, 3


class Attention(nn.Module):
    """Attention whose values have a width of their own, between two linear layers."""

    def __init__(self, each: int = 4, bias: bool = True) -> None:
        super().__init__()
        self.q, self.k = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.v, self.o = nn.Linear(WIDTH, HEADS * each, bias=bias), nn.Linear(HEADS * each, WIDTH, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (f(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        return x + self.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Chained(nn.Module):
    """Two convolutions with nothing but an average pool between them."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 10, 3, padding=1), nn.Conv2d(10, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.two(F.avg_pool2d(self.one(x), 2))


def low_rank_heads(model: Attention, each: int, rank: int) -> None:
    """Give every head a product of value and output weights of this rank, by mixing its values."""
    for head in range(HEADS):
        rows = slice(head * each, (head + 1) * each)
        mixing = torch.randn(each, rank, generator=torch.Generator().manual_seed(head)) / rank**0.5
        model.v.weight.data[rows] = mixing @ model.v.weight.data[rows][:rank]
        if model.v.bias is not None:
            model.v.bias.data[rows] = mixing @ model.v.bias.data[rows][:rank]


def tokens(rows: int = 24) -> Tensor:
    return torch.randn(rows, 5, WIDTH, generator=torch.Generator().manual_seed(1))


def test_the_product_is_the_truncated_svd():
    torch.manual_seed(0)
    for n, d, o, rank in ((6, 9, 8, 4), (6, 4, 3, 5), (5, 5, 5, 5)):
        values, outputs = torch.randn(n, d).double(), torch.randn(o, n).double()
        left, right = truncated_product(values, outputs, rank)
        u, s, v = torch.linalg.svd(outputs @ values, full_matrices=False)
        assert left.shape == (rank, d) and right.shape == (o, rank)
        torch.testing.assert_close(right @ left, u[:, :rank] * s[:rank] @ v[:rank])


@pytest.mark.slow
def test_heads_of_low_rank_lose_nothing():
    torch.manual_seed(0)
    for bias in (True, False):
        model = Attention(4, bias).eval()
        low_rank_heads(model, 4, 2)
        config = ldrf.PruneConfig(solver="closed-form", damping=1e-2)
        result = ldrf.prune(model, [tokens()], widths={"v": 2}, config=config)
        assert result.history[0].way == "svd"
        assert result.model.v.out_features == HEADS * 2
        torch.testing.assert_close(result.model(tokens(3)), model(tokens(3)), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_the_width_that_is_left_is_each_heads_nearest_product():
    torch.manual_seed(0)
    model = Attention().eval()
    config = ldrf.PruneConfig(solver="closed-form", damping=1e6)  # pulled so hard that the fit changes nothing
    slim = ldrf.prune(model, [tokens()], widths={"v": 3}, config=config).model
    for head in range(HEADS):
        whole, part = slice(4 * head, 4 * head + 4), slice(3 * head, 3 * head + 3)
        values = torch.cat([model.v.weight, model.v.bias[:, None]], 1)[whole]
        found = slim.o.weight[:, part] @ torch.cat([slim.v.weight, slim.v.bias[:, None]], 1)[part]
        u, s, v = torch.linalg.svd(model.o.weight[:, whole] @ values, full_matrices=False)
        torch.testing.assert_close(found, u[:, :3] * s[:3] @ v[:3], rtol=1e-3, atol=1e-4)


def test_convolutions_with_nothing_between_them():
    torch.manual_seed(0)
    model = Chained().eval()
    model.one.weight.data[5:] = model.one.weight.data[:5].flip(0) - model.one.weight.data[:5]
    model.one.bias.data[5:] = model.one.bias.data[:5].flip(0) - model.one.bias.data[:5]
    images = torch.randn(16, 3, 8, 8)
    result = ldrf.prune(model, [images], widths={"one": 5}, config=ldrf.PruneConfig(solver="closed-form", damping=1e-2))
    assert result.history[0].error < 1e-8
    torch.testing.assert_close(result.model(images[:2]), model(images[:2]), rtol=1e-4, atol=1e-4)


def test_a_nonlinearity_in_between_leaves_it_to_least_squares():
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).eval()
    result = ldrf.prune(model, [torch.randn(32, 6)], widths={"0": 4}, config=ldrf.PruneConfig(solver="closed-form"))
    assert result.history[0].way in ("cut", "closed form")
