"""Models that take one batch size, or whose graph does, are pruned in whole batches of that size."""

import pytest
import torch
from fixed_batches import SHAPE, Counted, Fixed, Folded, One, Scaled, batches, other_size
from networks import images, make

import ldrf
from ldrf.calibration.calibration_set import read_calibration
from ldrf.calibration.fixed_batch import in_batches_of_graph, in_its_batches
from ldrf.calibration.network import read_network, smaller_chunks
from ldrf.errors import LdrfError, LdrfWarning
from ldrf.inputs import Inputs
from ldrf.runtime.device import CPU
from ldrf.tracing.counting import count_macs

CONFIG = ldrf.PruneConfig(steps=2, joint_steps=2, multiple=1)
pytestmark = pytest.mark.filterwarnings("ignore:.*calibration images give")

KINDS = [
    (Fixed, batches(8, 24), 8),
    (One, batches(1, 190), 1),
    (Folded, batches(4, 12, (5, 6)), 4),
    (Counted, batches(8, 24), 8),
    (Scaled, batches(8, 24), 8),
]
ids = [kind.__name__ for kind, _, _ in KINDS]


@pytest.mark.parametrize(("kind", "given", "rows"), KINDS, ids=ids)
def test_chunks_are_whole_batches(kind, given, rows):
    network = read_network(make(kind), given, (), CONFIG)
    calibration = network.calibration
    assert network.example.fixed and set(calibration.sizes) == {rows} and calibration.examples == rows * len(given)
    assert calibration.held_out and not calibration.held_out & set(calibration.fitting)
    assert torch.equal(torch.cat([chunk.args[0] for chunk in calibration.chunks]), torch.cat(given))
    assert network.macs == count_macs(network.model, Inputs((given[0],), {}, fixed=True))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "given", "rows"), KINDS, ids=ids)
def test_they_are_pruned_saved_and_loaded(kind, given, rows, tmp_path):
    model = make(kind)
    result = ldrf.prune(model, given, speedup=1.4, config=CONFIG, out=tmp_path / "run")
    assert result.speedup >= 1.4 and result.example.rows == rows
    slim = ldrf.load(tmp_path / "run", make(kind))
    assert torch.equal(slim(given[0]), result.model.eval()(given[0]))
    again = ldrf.load_result(tmp_path / "run", make(kind))
    assert again.example.fixed and again.model(*again.example.args).shape == given[0].shape[:1] + (4,)
    if kind in (Counted, Scaled):
        assert slim(other_size(given[0])).shape == (rows + 1, 4)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "given", "rows"), KINDS, ids=ids)
def test_full_width_is_the_model_itself(kind, given, rows):
    model = make(kind)
    result = ldrf.prune(model, given, widths={"first": 12, "second": 10}, config=CONFIG)
    for x in given if kind not in (Counted, Scaled) else [*given, other_size(given[0])]:
        torch.testing.assert_close(result.model.eval()(x), model(x), atol=1e-5, rtol=1e-5)


def test_a_chunk_is_a_whole_batch_however_small_chunks_should_be():
    config = ldrf.PruneConfig(chunk=3)
    assert read_network(make(Fixed), batches(8, 2), (), config).calibration.sizes == (8, 8)
    assert read_network(make(Counted), batches(8, 3), (), config).calibration.sizes == (3,) * 8


def test_a_single_batch_fits_and_judges_unless_it_can_be_divided():
    calibration = read_network(make(Fixed), batches(8, 1), (), CONFIG).calibration
    assert calibration.fitting == sorted(calibration.held_out) == [0]
    calibration = read_network(make(Counted), batches(8, 1), (), CONFIG).calibration
    assert calibration.sizes == (4, 4) and calibration.fitting == [0]


def test_images_that_do_not_fill_a_batch_are_left_out():
    given = [*batches(8, 2), images(3, shape=SHAPE)]
    with pytest.warns(LdrfWarning, match=r"Fixed is traced for one batch size only \(8\), so 3 of 19 images"):
        calibration = read_network(make(Fixed), iter(given), (), CONFIG).calibration
    assert calibration.sizes == (8, 8)
    with pytest.warns(LdrfWarning, match=r"Counted is traced .* so 3 of 19 images"):
        read_network(make(Counted), given, (), CONFIG)


def test_a_batch_of_another_size_than_the_code_says_is_told():
    with pytest.raises(LdrfError, match=r"Fixed cannot take a calibration batch of shape \(6, 3, 4, 4\)"):
        read_network(make(Fixed), batches(6, 2), (), CONFIG)


def test_several_processes_cannot_share_a_batch(monkeypatch):
    calibration = read_calibration(make(Fixed), batches(8, 2), 32, 0.2, False)
    monkeypatch.setattr("ldrf.calibration.fixed_batch.count", lambda: 2)
    for read in (in_its_batches, in_batches_of_graph):
        with pytest.raises(LdrfError, match="Fixed is traced for one batch size only .*: prune it in one process"):
            read(make(Fixed), calibration, 0.2)


def test_a_fixed_batch_is_not_halved_where_memory_is_short():
    calibration = read_network(make(Fixed), batches(8, 2), (), CONFIG).calibration
    with pytest.raises(LdrfError, match="the model is traced for batches of 8 only: use"):
        smaller_chunks(calibration, CPU, "no room")
