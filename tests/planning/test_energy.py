"""Algorithm 1's stage 1 on a small trained network: with labels, without, and with outputs that are no scores."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ldrf.algebra.decomposition import matrix_of, rank_at
from ldrf.errors import LdrfError
from ldrf.inputs import labels_of
from ldrf.planning.energy import find_energy

CLASSES = 3


def _blobs(rows: int, seed: int) -> tuple[Tensor, Tensor]:
    """Images of one class each: a fixed pattern and noise."""
    patterns = torch.randn(CLASSES, 3, 8, 8, generator=torch.Generator().manual_seed(7))
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (rows,), generator=generator)
    return patterns[labels] + 0.7 * torch.randn(rows, 3, 8, 8, generator=generator), labels


class Net(nn.Module):
    """Three convs with norms and a linear head."""

    def __init__(self, maps: bool = False) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 12, 3, padding=1), nn.Conv2d(12, 12, 3), nn.Conv2d(12, 8, 3)
        self.na, self.nb, self.nc = nn.BatchNorm2d(12), nn.BatchNorm2d(12), nn.BatchNorm2d(8)
        self.head, self.maps = nn.Linear(8, CLASSES), maps

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.na(self.a(x)))
        x = F.relu(self.nb(self.b(x)))
        x = F.relu(self.nc(self.c(x)))
        return x if self.maps else self.head(x.mean((2, 3)))


@pytest.fixture(scope="module")
def trained() -> nn.Module:
    torch.manual_seed(0)
    model = Net()
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(20):
        x, labels = _blobs(32, step)
        loss = F.cross_entropy(model(x), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model


def _batches(labels: bool = True, rows: int = 96) -> list:
    x, y = _blobs(rows, 100)
    return [(x[i : i + 32], y[i : i + 32]) if labels else x[i : i + 32] for i in range(0, rows, 32)]


@pytest.mark.slow
@pytest.mark.parametrize("labels", [True, False])
def test_stops_at_the_first_energy_that_recovers(trained, labels):
    found = find_energy(trained, _batches(labels), epsilon=0.1, step=0.2, steps=8)
    assert found.recovered and found.measure == ("accuracy" if labels else "agreement")
    assert found.energy == found.trials[-1].energy and found.ranks == found.trials[-1].ranks
    assert [t.energy for t in found.trials] == [0.1, 0.3, 0.5, 0.7, 0.9][: len(found.trials)]
    dense = found.trials[0].dense
    assert all(t.after < dense - found.tolerance for t in found.trials[:-1])
    assert found.trials[-1].after >= dense - found.tolerance
    assert dense == 1.0 if not labels else dense > 0.9
    for line in ("energy", "recovered at", "a "):
        assert line in str(found)
    assert list(found.ranks) == ["a", "b", "c"]
    for name, rank in found.ranks.items():
        weight = trained.get_submodule(name).weight.detach().double()
        assert rank == rank_at(torch.linalg.svdvals(matrix_of(weight)), found.energy)


@pytest.mark.slow
def test_unrecovered_gives_the_top_energy(trained):
    found = find_energy(trained, _batches(), epsilon=0.05, step=0.04, top=0.1, steps=0, tolerance=0.0)
    assert not found.recovered and found.energy == 0.1 and "not recovered" in str(found)
    assert [t.energy for t in found.trials] == [0.05, 0.09, 0.1]


@pytest.mark.slow
def test_outputs_that_are_no_scores_are_judged_by_their_error(trained):
    model = Net(maps=True)
    model.load_state_dict(trained.state_dict())
    found = find_energy(model, _batches(), epsilon=0.9, top=1.0, step=0.1, steps=2, labelled=False)
    assert found.measure == "error" and found.recovered and found.trials[0].dense == 0
    with pytest.raises(LdrfError, match="need a classifier"):
        find_energy(model, _batches(), labelled=True)


def test_tuning_helps_repeatably_and_leaves_the_model_alone(trained):
    before, state, mode = copy.deepcopy(trained.state_dict()), torch.get_rng_state(), trained.training
    options = {"epsilon": 0.2, "top": 0.2, "steps": 10, "rate": 3e-3, "seed": 5}
    runs = [find_energy(trained, iter(_batches()), **options) for _ in range(2)]
    assert runs[0] == runs[1] and runs[0].trials[0].after > runs[0].trials[0].before
    assert torch.equal(torch.get_rng_state(), state) and trained.training is mode
    assert all(torch.equal(before[k], v) for k, v in trained.state_dict().items())


def test_labels_are_found_and_left_out(trained):
    x, labels = _blobs(40, 3)
    for batch in ((x, labels), [x, labels.int()], {"x": x, "labels": labels}):
        found = labels_of(trained, batch)
        assert found is not None and torch.equal(found, labels)
    for batch in (x, (x,), (x, labels.float()), (x, labels[:7]), (x, labels > 0), {"x": x, "label": 3}):
        assert labels_of(trained, batch) is None
    assert labels_of(nn.Bilinear(4, 4, 2), (torch.rand(3, 4), torch.arange(3))) is None  # the model takes both
    found = find_energy(trained, [(x, labels)], labelled=False, epsilon=0.9, steps=0)
    assert found.measure == "agreement"
    with pytest.raises(LdrfError, match="labelled=True"):
        find_energy(trained, [x], labelled=True)
    with pytest.raises(LdrfError, match="at least two images"):
        find_energy(trained, [x[:1]])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"epsilon": 0.0}, "0 < epsilon"),
        ({"epsilon": 0.95}, "0 < epsilon"),
        ({"top": 1.1}, "0 < epsilon"),
        ({"step": 0.0}, "'step'"),
        ({"tolerance": 1.0}, "'tolerance'"),
        ({"steps": -1}, "steps >= 0"),
        ({"rate": 0.0}, "rate above 0"),
    ],
)
def test_bad_settings_are_one_sentence(trained, change, words):
    with pytest.raises(LdrfError, match=words):
        find_energy(trained, _batches(), **change)
