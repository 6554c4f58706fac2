"""Every kind of cell on a small network: its outcome against what the network itself says."""

import json
from functools import partial

import pytest
import torch
from torch import nn

import ldrf
from ldrf.calibration.indexed_batches import IndexedBatches
from ldrf.data.cifar10 import LabelledImages, normalise
from ldrf.errors import LdrfError
from ldrf.reproduce.cells import Cell, Shelf
from ldrf.reproduce.maps import enhanced, output_of, pack, unpack
from ldrf.reproduce.measure import measure
from ldrf.reproduce.recipe import Scale, prune_cell
from ldrf.reproduce.subject import Subject

SCALE = Scale(images=48, test_images=None, steps=2)
DENSE = Cell("dense", "dense", {"test_images": None})
SLIM = prune_cell("slim", "ldrf", SCALE, {"widths": {"0": 4}}, solver="closed-form")


def arrays(split: str) -> LabelledImages:
    """Images 6 x 6 whose class is how bright they are."""
    generator = torch.Generator().manual_seed(len(split))
    labels = torch.arange(60) % 3
    noise = torch.randint(0, 60, (60, 3, 6, 6), generator=generator)
    return LabelledImages((noise + 60 * labels.view(-1, 1, 1, 1)).to(torch.uint8), labels)


def batches(split: str) -> IndexedBatches:
    data = arrays(split)
    return IndexedBatches(lambda rows: (normalise(data.images[rows]), data.labels[rows]), tuple(range(len(data))))


@pytest.fixture(scope="module")
def subject() -> Subject:
    torch.manual_seed(0)
    convs = [nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 6, 3), nn.ReLU()]
    model = nn.Sequential(*convs, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3)).eval()
    return Subject(model, batches("train"), batches("test"), partial(arrays))


@pytest.fixture(scope="module")
def shelf(subject, tmp_path_factory) -> Shelf:
    """A shelf with the dense and a slim network on it."""
    shelf = Shelf(tmp_path_factory.mktemp("work"), subject.digest())
    for cell in (DENSE, SLIM):
        shelf.keep(cell, measure(cell, subject, shelf), 1.0)
    return shelf


def outcome(cell: Cell, subject: Subject, shelf: Shelf) -> dict:
    return json.loads(json.dumps(measure(cell, subject, shelf)))  # as it comes back from the file


def conv_macs(width: int) -> int:
    return 16 * width * 27 + 4 * 6 * 9 * width + 18


@pytest.mark.slow
def test_dense_is_measured_as_it_is(subject, shelf):
    found = shelf.find(DENSE)["outcome"]
    right = subject.model(normalise(arrays("test").images)).argmax(1) == arrays("test").labels
    assert found["top1"] == pytest.approx(100 * right.float().mean().item(), abs=1e-3) and found["test_images"] == 60
    assert found["macs"] == conv_macs(8)


def test_pruned_has_its_widths_its_sparsity_and_its_network(subject, shelf):
    found = shelf.find(SLIM)["outcome"]
    assert found["widths"]["0"] == 4 and found["macs"] == conv_macs(4) and found["dense_macs"] == conv_macs(8)
    assert found["sparsity"] == {"0": 50.0, "2": 50.0}
    slim = ldrf.load(shelf.place(SLIM), subject.model).eval()
    right = slim(normalise(arrays("test").images)).argmax(1) == arrays("test").labels
    assert found["top1"] == pytest.approx(100 * right.float().mean().item(), abs=1e-3)


def test_a_source_gives_its_widths(subject, shelf):
    same = prune_cell("same", "ldrf", SCALE, source=SLIM, solver="none")
    assert outcome(same, subject, shelf)["widths"] == shelf.find(SLIM)["outcome"]["widths"]
    lost = prune_cell("lost", "ldrf", SCALE, source=prune_cell("gone", "ldrf", SCALE, {"speedup": 9.0}))
    with pytest.raises(LdrfError, match="lost takes the widths of gone, which is not finished"):
        measure(lost, subject, shelf)


def test_a_rival_is_called_by_name(subject, shelf, monkeypatch):
    calls = []

    def prune(model, images, **named):
        calls.append({"images": sum(len(batch[1]) for batch in images), **named})
        raise LdrfError("enough")

    monkeypatch.setattr(ldrf, "prune", prune)
    for method in ("he2017", "ldrf"):
        with pytest.raises(LdrfError, match="enough"):
            measure(prune_cell(method, method, SCALE, {"speedup": 2.0}, seed=3, ignore=("6",)), subject, shelf)
    he, own = calls
    assert he["method"] == "he2017" and "method" not in own
    assert he["images"] == 48 and he["speedup"] == 2.0 and he["ignore"] == ["6"] and he["config"].seed == 3
    assert own["config"].steps == 2


def test_tuning_starts_from_the_slim_network_and_learns(subject, shelf):
    settings = {"iterations": 10, "test_images": None, "watched": 30, "seed": 0}
    found = outcome(Cell("tuned", "tune", settings, SLIM), subject, shelf)
    assert [step for step, _, _ in found["curve"]][-1] == 10 and found["watched"] == 30
    assert found["macs"] == conv_macs(4) and found["recipe"]["rate"] == 0.01
    assert found["curve"][-1][1] < found["curve"][0][1] and 0 <= found["start"] <= 100
    dense = outcome(Cell("tuned", "tune", settings, DENSE), subject, shelf)
    assert dense["macs"] == conv_macs(8)


def test_a_network_that_was_deleted_is_made_again(subject, shelf, tmp_path):
    elsewhere = Shelf(tmp_path, shelf.subject)
    found = outcome(Cell("time", "time", {"batch": 4, "seconds": 0.01}, SLIM), subject, elsewhere)
    assert found["macs"] == conv_macs(4) and found["dense_macs"] == conv_macs(8)
    assert found["ms"]["dense"] > 0 and found["ms"]["slim"] > 0
    assert elsewhere.place(SLIM).is_dir()


def test_maps_are_those_of_the_module(subject, shelf):
    found = outcome(Cell("maps", "maps", {"module": "1", "image": 4}, SLIM), subject, shelf)
    assert torch.equal(unpack(found["image"]), arrays("test").images[4])
    image = normalise(arrays("test").images[4:5])
    maps = subject.model[:2](image)[0]
    assert torch.equal(output_of(subject.model, "1", image), maps)
    assert torch.equal(unpack(found["dense"]), unpack(pack(enhanced(maps))))
    assert unpack(found["slim"]).shape == (4, 4, 4)
    assert unpack(pack(enhanced(maps))).amax((1, 2)).unique().tolist() in ([255], [0, 255])


def test_ranks_and_energy(subject, shelf):
    ranks = outcome(Cell("ranks", "ranks", {"energy": 0.5, "images": 20}), subject, shelf)
    assert ranks["energy"] == 0.5 and 1 <= ranks["ranks"]["0"] < 8
    settings = {"images": 48, "steps": 1, "ignore": [], "seed": 0}
    energy = outcome(Cell("energy", "energy", settings), subject, shelf)
    assert energy["measure"] == "accuracy" and set(energy["ranks"]) == {"0", "2"}


def test_the_digest_follows_weights_and_images(subject):
    other = nn.Sequential(*subject.model.children())
    again = Subject(other, batches("train"), batches("test"), partial(arrays))
    assert again.digest() == subject.digest()
    fewer = Subject(other, batches("train").take(50), batches("test"), partial(arrays))
    swapped = Subject(other, batches("test"), batches("train"), partial(arrays))
    changed = Subject(
        nn.Sequential(*list(other)[:6], nn.Linear(6, 3)), batches("train"), batches("test"), partial(arrays)
    )
    assert len({s.digest() for s in (subject, fewer, swapped, changed)}) == 4
