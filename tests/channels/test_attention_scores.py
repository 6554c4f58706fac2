"""Queries and keys: heads are told apart, and the scores of a smaller width are the nearest."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false
# pyright: reportOptionalMemberAccess=false, reportOptionalSubscript=false, reportOptionalIterable=false, reportGeneralTypeIssues=false

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ldrf
from ldrf.calibration.network import Network, read_network
from ldrf.channels.attention_scores import nearest_scores, readers_behind
from ldrf.registry import METHODS

WIDTH, HEADS, EACH = 12, 3, 4
LAYOUTS = ("own", "fused", "packed", "interleaved", "kv")


class Attention(nn.Module):
    """Attention that leaves the width of its heads open, its layers arranged in several ways."""

    def __init__(self, layout: str = "fused", bias: bool = True) -> None:
        super().__init__()
        self.layout = layout
        names = {"packed": ("qkv",), "interleaved": ("qkv",), "kv": ("q", "kv")}.get(layout, ("q", "k", "v"))
        for name in names:
            setattr(self, name, nn.Linear(WIDTH, len(name) * WIDTH, bias=bias))
        self.o = nn.Linear(WIDTH, WIDTH)

    def heads(self, x: Tensor) -> tuple[Tensor, ...]:
        apart = lambda z: z.unflatten(-1, (HEADS, -1)).transpose(1, 2)  # noqa: E731
        if self.layout == "packed":
            return tuple(map(apart, self.qkv(x).chunk(3, -1)))
        if self.layout == "interleaved":
            return self.qkv(x).unflatten(-1, (HEADS, 3, -1)).permute(3, 0, 2, 1, 4).unbind(0)
        if self.layout == "kv":
            return apart(self.q(x)), *map(apart, self.kv(x).chunk(2, -1))
        return apart(self.q(x)), apart(self.k(x)), apart(self.v(x))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        if self.layout == "own":
            seen = ((q * EACH**-0.5) @ k.transpose(-1, -2)).softmax(-1) @ v
        else:
            seen = F.scaled_dot_product_attention(q, k, v)
        return x + self.o(seen.transpose(1, 2).flatten(2))


class Grouped(nn.Module):
    """Three heads of queries that share one head of keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, w) for w in (WIDTH, EACH, EACH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        q = self.q(x).unflatten(-1, (HEADS, -1)).transpose(1, 2)
        k, v = (f(x).unsqueeze(1).expand(-1, HEADS, -1, -1) for f in (self.k, self.v))
        return x + self.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


def made(layout: str = "fused", bias: bool = True) -> Attention:
    torch.manual_seed(1)
    model = Attention(layout, bias).eval()
    for parameter in model.parameters():
        parameter.data *= 2  # scores that matter
    return model


def tokens(rows: int = 64) -> Tensor:
    return torch.randn(rows, 5, WIDTH, generator=torch.Generator().manual_seed(1))


def network(model: nn.Module) -> Network:
    return read_network(model, [tokens()], (), ldrf.PruneConfig())


def low_rank(model: Attention, rank: int) -> None:
    """Give every head scores, and values, of this rank."""
    net = network(model)
    for scores in (s for unit in net.units for s in unit.scores):
        name = next(la.name for la in net.trace.layers if la.node == scores.layers[1])
        _mix(model.get_submodule(name), scores.heads[1], rank)
    if model.layout in ("packed", "interleaved"):
        compared = torch.cat([h.flatten() for h in net.units[0].compared.heads])
        rows = torch.arange(3 * WIDTH)
        _mix(model.qkv, rows[~torch.isin(rows, compared)].view(HEADS, EACH), rank)


def _mix(layer: nn.Linear, heads: Tensor, rank: int) -> None:
    for i, rows in enumerate(heads):
        mixing = torch.randn(len(rows), rank, generator=torch.Generator().manual_seed(i)) / rank**0.5
        layer.weight.data[rows] = mixing @ layer.weight.data[rows][:rank]
        if layer.bias is not None:
            layer.bias.data[rows] = mixing @ layer.bias.data[rows][:rank]


def test_the_scores_are_those_of_the_truncated_svd():
    torch.manual_seed(0)
    q, k = torch.randn(40, 6).double(), torch.randn(30, 6).double() * torch.tensor([3.0, 2, 1, 1, 0.5, 0.1])
    u, s, v = torch.linalg.svd(q @ k.T, full_matrices=False)
    for width in (1, 3, 6):
        rotation = nearest_scores(q.T @ q, k.T @ k, width)
        found = (q @ rotation.query.T) @ (k @ rotation.key.T).T
        torch.testing.assert_close(found, (u[:, :width] * s[:width]) @ v[:width])
        torch.testing.assert_close(rotation.sizes, s[:6])


def test_dead_heads_turn_into_nothing():
    rotation = nearest_scores(torch.zeros(3, 3), torch.eye(3), 2)
    assert rotation.query.shape == (2, 3) and not rotation.query.any() and torch.isfinite(rotation.key).all()


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_heads_are_told_apart(layout: str):
    net = network(made(layout))
    unit = next(u for u in net.units if u.scores)
    query, key = unit.compared.heads
    assert unit.width == EACH and query.shape == key.shape == (HEADS, EACH)
    step = 3 * EACH if layout == "interleaved" else EACH
    assert query.tolist() == [list(range(h * step, h * step + EACH)) for h in range(HEADS)]
    offset = {"packed": WIDTH, "interleaved": EACH}.get(layout, 0)
    assert (key - query == offset).all()
    assert [la.name for la in readers_behind(net.trace, unit.compared.node)] == ["o"]


@pytest.mark.parametrize("layout", ["own", "fused", "packed", "interleaved"])
@pytest.mark.parametrize("bias", [True, False])
def test_scores_of_low_rank_lose_nothing(layout: str, bias: bool):
    model = made(layout, bias)
    low_rank(model, 2)
    name = "qkv" if layout in ("packed", "interleaved") else "q"
    result = ldrf.prune(model, [tokens()], widths={name: 2}, config=ldrf.PruneConfig(solver="closed-form"))
    x = torch.randn(8, 5, WIDTH)
    with torch.no_grad():
        wanted, found = model(x), result.model(x)
    assert result.widths[name] == 2
    assert result.history[0].way.startswith("svd") and result.history[0].cut_error > 0.01
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["fused", "packed"])
def test_all_methods_cut_queries_and_keys(layout: str):
    model = made(layout)
    net = network(model)
    name = next(u.name for u in net.units if u.scores)
    batches = [(tokens(), torch.zeros(64, dtype=torch.long))]
    for method in METHODS.names:
        if method == "molchanov2017":
            continue  # it needs a classifier
        config = ldrf.PruneConfig(steps=5, joint_steps=5)
        result = ldrf.prune(model, batches, keep={name: 0.5}, method=method, config=config)
        assert result.widths[name] == 2 and result.model(tokens(3)).shape == (3, 5, WIDTH)


@pytest.mark.slow
def test_the_svd_is_far_better_than_the_cut_and_a_target_finds_the_width():
    model = made("fused")
    result = ldrf.prune(model, [tokens(256)], speedup=1.3, config=ldrf.PruneConfig(steps=20, joint_steps=40))
    assert 1.3 <= result.speedup < 1.6
    one = ldrf.prune(model, [tokens(256)], keep={"q": 0.5}, config=ldrf.PruneConfig(steps=20, joint_steps=40))
    assert one.history[0].error < 0.7 * one.history[0].cut_error


@pytest.mark.slow
def test_heads_that_share_keys_are_cut_without_a_turn():
    torch.manual_seed(0)
    model = Grouped().eval()
    net = network(model)
    unit = next((u for u in net.units if u.scores), None)
    assert unit is None or unit.compared is None
    result = ldrf.prune(model, [tokens()], speedup=1.2, config=ldrf.PruneConfig(steps=5, joint_steps=5))
    assert result.model(tokens(2)).shape == (2, 5, WIDTH)


class Numbered(Attention):
    """Attention that keeps the width of its heads as a number of its own, for queries, keys and values alike."""

    def __init__(self) -> None:
        super().__init__("fused")
        self.each = EACH

    def heads(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(f(x).unflatten(-1, (-1, self.each)).transpose(1, 2) for f in (self.q, self.k, self.v))


@pytest.mark.slow
def test_one_number_does_not_follow_two_widths():
    torch.manual_seed(0)
    net = network(Numbered().eval())
    assert [(u.name, u.width, u.attributes) for u in net.units] == [("q", HEADS, ())]  # whole heads


class Spelt(Numbered):
    """The same with the count of its heads spelt out, so that only that one number can follow a cut."""

    def heads(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(f(x).unflatten(-1, (HEADS, self.each)).transpose(1, 2) for f in (self.q, self.k, self.v))


@pytest.mark.slow
def test_widths_that_share_a_number_go_together():
    torch.manual_seed(0)
    model = Spelt().eval()
    unit = network(model).units[0]
    assert unit.width == EACH and [la.name for la in unit.partners] == ["k", "v"] and unit.compared is not None
    result = ldrf.prune(model, [tokens()], widths={"q": 3}, config=ldrf.PruneConfig(steps=10, joint_steps=20))
    assert result.model.each == 3 and result.history[0].error <= result.history[0].cut_error
