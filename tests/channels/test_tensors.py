"""Class tokens, tables of positions, embeddings and tied heads are cut with the stream they belong to."""

# pyright: reportIndexIssue=false

import copy

import pytest
import torch
import torch.nn.functional as F
from networks import flow_of, images, unread
from torch import Tensor, nn

import ldrf
from ldrf.calibration.network import read_network
from ldrf.config import PruneConfig
from ldrf.planning.objectives.params import parameter_model
from ldrf.planning.objectives.speedup import mac_model
from ldrf.tracing.counting import count_macs, count_parameters
from ldrf.units.module_surgery import cut_plainly

COUPLED = PruneConfig(solver="closed-form", chunk=8, coupled=True)


class Patches(nn.Module):
    """Patches behind a class token, with positions, through blocks without norms: what is cut is only cut."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.token, self.positions = nn.Parameter(torch.randn(width)), nn.Parameter(torch.randn(width, 1, 5))
        self.scales = nn.Parameter(torch.rand(2, width))
        self.up, self.down, self.head = nn.Linear(width, 12), nn.Linear(12, width), nn.Linear(width, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.view(1, 1, -1).expand(x.shape[0], 1, -1), x], 1)
        x = (x + self.positions.permute(1, 2, 0)[:, : x.shape[1]]) * self.scales[0]
        return self.head((x + self.down(self.up(x).relu())).mean(1))


class Words(nn.Module):
    """Embedded words and positions, a block, and a head that is the table of words itself if ``tied``."""

    def __init__(self, tied: bool = False, width: int = 8) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(20, width), nn.Embedding(6, width)
        self.up, self.down, self.head = nn.Linear(width, 12), nn.Linear(12, width), nn.Linear(width, 20, bias=False)
        if tied:
            self.head.weight = self.words.weight

    def forward(self, words: Tensor) -> Tensor:
        x = self.words(words) + self.places(torch.arange(words.shape[1]))
        return self.head(x + self.down(self.up(x).relu()))


def words(rows: int = 32) -> Tensor:
    return torch.randint(0, 20, (rows, 6), generator=torch.Generator().manual_seed(0))


CASES = {
    "patches": (Patches, images(32)),
    "words": (Words, words()),
    "tied": (lambda: Words(tied=True), words()),
}


def made(case: str) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    kind, x = CASES[case]
    return kind().eval(), x


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "stream", "tables"), [("patches", "patches", ()), ("words", "down", ("words", "places"))]
)
def test_streams_are_units_with_their_tensors(case: str, stream: str, tables: tuple[str, ...]):
    model, x = made(case)
    net = read_network(model, [x], (), PruneConfig())
    (unit,) = net.coupled
    assert (unit.name, unit.width, unit.tables) == (stream, 8, tables)
    reasons = {s.name: s.reason for s in net.skipped}
    assert reasons.keys() == {*unit.makers, "head"}
    assert all("coupled=True" in reasons[name] for name in unit.makers)


@pytest.mark.parametrize("case", ["patches", "words"])
def test_a_cut_stream_is_the_dense_one_that_nobody_reads_from(case: str):
    model, x = made(case)
    net = read_network(model, [x], (), COUPLED)
    kept = {u.name: torch.arange(1, u.width, 2) for u in net.units}
    slim = copy.deepcopy(model)
    cut_plainly(slim, net.units, kept)
    with torch.no_grad():
        torch.testing.assert_close(slim(x), unread(net, kept)(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_streams_are_pruned_saved_and_loaded(case: str, tmp_path):
    model, x = made(case)
    name = "patches" if case == "patches" else "down"
    result = ldrf.prune(model, [x], widths={name: 5}, config=PruneConfig(steps=4, joint_steps=4, chunk=8))
    assert result.widths[name] == 5 and result.speedup > 1
    stream = next(h for h in result.history if h.name == name)
    assert stream.error <= stream.cut_error
    ldrf.save(result, tmp_path / "slim")
    loaded = ldrf.load(tmp_path / "slim", made(case)[0])
    with torch.no_grad():
        torch.testing.assert_close(loaded(x), result.model(x))


def test_all_tensors_of_a_stream_are_cut():
    model, x = made("patches")
    slim = ldrf.prune(model, [x], widths={"patches": 5}, config=PruneConfig(steps=0, chunk=8)).model
    shapes = {name: tuple(p.shape) for name, p in slim.named_parameters()}
    assert (shapes["token"], shapes["positions"], shapes["scales"]) == ((5,), (5, 1, 5), (2, 5))


@pytest.mark.slow
def test_embeddings_know_their_new_width():
    model, x = made("words")
    slim = ldrf.prune(model, [x], widths={"down": 5}, config=PruneConfig(steps=0, chunk=8)).model
    assert slim.words.embedding_dim == slim.places.embedding_dim == 5  # pyright: ignore
    assert slim.head.in_features == 5  # pyright: ignore


@pytest.mark.slow
def test_a_tied_head_stays_tied():
    model, x = made("tied")
    slim = ldrf.prune(model, [x], widths={"down": 5}, config=PruneConfig(steps=2, joint_steps=2, chunk=8)).model
    assert slim.head.weight is slim.words.weight and slim.head.weight.shape == (20, 5)  # pyright: ignore
    assert model.head.weight is model.words.weight and model.head.weight.shape == (20, 8)  # pyright: ignore


@pytest.mark.slow
def test_a_table_that_other_code_reads_keeps_its_width():
    class Twice(Words):
        def forward(self, words: Tensor) -> Tensor:
            return super().forward(words) + self.words.weight.sum()

    torch.manual_seed(0)
    net = read_network(Twice().eval(), [words()], (), PruneConfig())
    assert not net.coupled
    assert "'words.weight', which is used by more than one call" in {s.name: s.reason for s in net.skipped}["down"]


class TwoHeads(Words):
    """Words by a tied head, and once more by the same table without a bias of its own."""

    def __init__(self) -> None:
        super().__init__(tied=True)

    def forward(self, words: Tensor) -> tuple[Tensor, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x = self.words(words) + self.places(torch.arange(words.shape[1]))
        x = x + self.down(self.up(x).relu())
        return self.head(x), F.linear(x.relu(), self.words.weight)


@pytest.mark.parametrize("kind", [Patches, Words, lambda: Words(tied=True), TwoHeads])
def test_what_a_stream_with_its_tables_costs_is_what_is_counted(kind):
    torch.manual_seed(0)
    model, x = kind().eval(), images(32) if kind is Patches else words()
    net = read_network(model, [x], (), PruneConfig(coupled=True))
    (stream,) = [u for u in net.units if u.coupled]
    result = ldrf.prune(model, [x], widths={stream.name: 5}, config=PruneConfig(steps=2, joint_steps=0, chunk=8))
    macs = mac_model(net.trace, net.units, count_macs(net.model, net.example))
    parameters = parameter_model(net.trace, net.units, count_parameters(net.model))
    assert macs.at({stream.name: 5}) == pytest.approx(count_macs(result.model, net.example))
    assert parameters.at({stream.name: 5}) == pytest.approx(count_parameters(result.model))


class FrozenNorm(nn.Module):
    """BatchNorm as detectors keep it: its scale and offset are computed from four tensors when it runs."""

    def __init__(self, width: int) -> None:
        super().__init__()
        for name in ("weight", "bias", "mean", "var"):
            self.register_buffer(name, torch.rand(width) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        weight, bias, mean, var = (getattr(self, n).reshape(1, -1, 1, 1) for n in ("weight", "bias", "mean", "var"))
        scale = weight * (var + 1e-5).rsqrt()
        return x * scale + (bias - mean * scale)


@pytest.mark.slow
def test_tensors_that_a_scale_is_computed_from_are_cut_with_the_channels():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), FrozenNorm(8), nn.ReLU(), nn.Conv2d(8, 4, 1)).eval()
    net = read_network(model, [images(8)], (), ldrf.PruneConfig())
    (unit,) = net.units
    assert sorted(s.tensor for s in unit.slices) == ["1.bias", "1.mean", "1.var", "1.weight"]
    slim = copy.deepcopy(model)
    cut_plainly(slim, net.units, {unit.name: torch.arange(5)})
    assert torch.allclose(slim[:2](images(2)), model[:2](images(2))[:, :5], atol=1e-6)
    result = ldrf.prune(model, [images(24)], widths={"0": 5}, config=ldrf.PruneConfig(steps=2, joint_steps=2))
    assert result.model[1].weight.shape == (5,)


def test_a_scale_computed_from_the_images_is_not_a_tensor_of_the_model():
    _, flow = flow_of(lambda x: x * (torch.ones(6, 1, 1) * 2 + x.mean()))
    assert any("cannot be cut" in why for _, why in flow.frozen)
