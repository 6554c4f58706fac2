"""Every stage, method and network on the pretend device gives what it gives on the CPU, and computes there."""

import copy
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pretend_device
import pytest
import torch
from networks import CASES, Case, Chain, Residual, VitBlock, images, make
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import ldrf
from ldrf.calibration.store import ActivationStore
from ldrf.errors import LdrfError, LdrfWarning
from ldrf.inputs import Inputs
from ldrf.measuring.bench import bench
from ldrf.registry import METHODS
from ldrf.runtime.device import CPU

# A handful of images is too few to gain by reconstruction; that it is told has a test of its own.
pytestmark = pytest.mark.filterwarnings("ignore:On the held-out images plain cutting:ldrf.errors.LdrfWarning")

QUICK = ldrf.PruneConfig(steps=1, joint_steps=1, chunk=8, energy=0.1, multiple=1)
LIGHT = ldrf.PruneConfig(solver="closed-form", selection="weight", chunk=8, multiple=1)  # neither curves nor descent

ONE_CHUNK = ldrf.PruneConfig(**{**vars(LIGHT), "chunk": ldrf.PruneConfig().chunk})  # as networks are traced with
Known = Callable[..., Any]
HALVES = {"block1.conv1": 0.5, "block2.conv1": 0.5}  # of Residual


def there(model: nn.Module) -> nn.Module:
    return copy.deepcopy(model).to("pretend")


def outputs(model: nn.Module, batch: Any) -> list[Tensor]:
    given = batch if isinstance(batch, tuple) else (batch,)
    device = next(model.parameters()).device
    with torch.no_grad():
        return [t.cpu() for t in tree_leaves(model.eval()(*(t.to(device) for t in given))) if isinstance(t, Tensor)]


def assert_alike(mine: Any, wanted: Any, batch: Any, tolerance: float = 1e-4) -> None:
    """Two results have the same widths, and models that give the same."""
    assert mine.widths == wanted.widths
    for one, other in zip(outputs(mine.model, batch), outputs(wanted.model, batch), strict=True):
        assert float((one - other).abs().max()) <= tolerance * max(float(other.abs().max()), 1e-6)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_network_comes_out_as_on_the_cpu(case: Case, network: Known, prune_known: Known):
    batch, widths = case.batch(48), {unit.name: max(1, unit.width // 2) for unit in network(case.kind).units}
    wanted = prune_known(case.kind, widths=widths, config=ONE_CHUNK)
    with pretend_device.seen() as state:
        mine = ldrf.prune(there(make(case.kind)), [batch], widths=widths, config=ONE_CHUNK)
        assert_alike(mine, wanted, batch)
        assert {p.device.type for p in mine.model.parameters()} == {"pretend"}
        assert mine.computed is not None and mine.computed.device == "pretend:0"
        layers = ("convolution", "aten::linear", "aten::mm", "aten::addmm", "aten::bmm")
        assert sum(n for name, n in state.calls.items() if any(layer in name for layer in layers)) > 20


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Residual, VitBlock])
def test_the_whole_method_with_descent_comes_out_as_on_the_cpu(kind: type[nn.Module]):
    batch = images(20)
    wanted = ldrf.prune(make(kind), [batch], speedup=1.5, config=QUICK)
    with pretend_device.seen() as state:
        mine = ldrf.prune(there(make(kind)), [batch.to("pretend")], speedup=1.5, config=QUICK)
        assert_alike(mine, wanted, batch)
        assert state.convolutions() > 20
        assert [h.way for h in mine.history] == [h.way for h in wanted.history]


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [{"solver": "l1-mask", "metric": "embedding"}, {"metric": "embedding-data", "selection": "weight"}],
    ids=["mask", "embedding"],
)
def test_other_solvers_and_metrics_come_out_as_on_the_cpu(settings: dict[str, Any]):
    config = ldrf.PruneConfig(steps=1, joint_steps=0, chunk=8, multiple=1, **settings)
    keep = {"block1.conv1": 0.5, "block2.conv1": 1.0}
    wanted = ldrf.prune(make(Residual), [images(16)], keep=keep, config=config)
    with pretend_device.seen():
        mine = ldrf.prune(there(make(Residual)), [images(16)], keep=keep, config=config)
        assert_alike(mine, wanted, images(16))


@pytest.mark.slow
@pytest.mark.parametrize("method", [name for name in METHODS.built_in if name != "ldrf"])
def test_every_method_comes_out_as_on_the_cpu(method: str, prune_known: Known):
    batch = images(48), torch.arange(48) % 5
    asked: dict[str, Any] = {"keep": {"block1.conv1": 0.5}, "method": method}
    labelled = METHODS.find(method).labelled
    wanted = ldrf.prune(make(Residual), [batch], **asked) if labelled else prune_known(Residual, **asked)
    with pretend_device.seen():
        mine = ldrf.prune(there(make(Residual)), [batch], **asked)
        assert_alike(mine, wanted, batch[0])


@pytest.mark.slow
def test_a_model_on_the_cpu_can_be_pruned_on_a_device_and_comes_back(prune_known: Known):
    wanted = prune_known(Residual, keep={"block1.conv1": 0.5}, config=ONE_CHUNK)
    with pretend_device.seen() as state:
        mine = ldrf.prune(make(Residual), [images(48)], keep={"block1.conv1": 0.5}, config=ONE_CHUNK, device="auto")
        assert state.convolutions() > 20
    assert {p.device for p in mine.model.parameters()} == {CPU}
    assert_alike(mine, wanted, images(24))
    assert mine.versions["device"] == "pretend:0" and wanted.versions["device"] == "cpu"


def test_a_device_that_is_not_there_is_refused_before_any_work():
    with pytest.raises(LdrfError, match="The device 'cuda:7' is not there"):
        ldrf.prune(make(Chain), [images(4)], speedup=1.5, device="cuda:7")


@pytest.mark.slow
def test_ranks_and_units_are_those_of_the_cpu():
    batch = images(24)
    analysis, inspection = ldrf.analyze(make(Residual), [batch]), ldrf.inspect(make(Residual), [batch])
    with pretend_device.seen() as state:
        assert ldrf.analyze(there(make(Residual)), [batch]) == analysis
        assert state.convolutions() > 0
        assert ldrf.inspect(there(make(Residual)), [batch]) == inspection
        assert ldrf.analyze(make(Residual), [batch], device="pretend") == analysis


def test_the_energy_search_is_that_of_the_cpu():
    batch = images(24), torch.arange(24) % 5
    wanted = ldrf.find_energy(make(Chain), [batch], epsilon=0.5, top=0.6, steps=2)
    with pretend_device.seen() as state:
        mine = ldrf.find_energy(there(make(Chain)), [batch], epsilon=0.5, top=0.6, steps=2)
        assert state.convolutions() > 0
    assert mine.ranks == wanted.ranks and mine.energy == wanted.energy


def test_a_single_layer_is_solved_as_on_the_cpu():
    x, weight, bias = torch.randn(64, 6), torch.randn(8, 6), torch.randn(8)
    wanted = ldrf.prune_layer(x, weight, bias, 4, steps=4)
    with pretend_device.seen():
        mine = ldrf.prune_layer(x, weight.to("pretend"), bias, 4, steps=4)
        assert mine.weight.device.type == "pretend" and torch.equal(mine.kept, wanted.kept)
        torch.testing.assert_close(mine(x.to("pretend")).cpu(), wanted(x), rtol=1e-4, atol=1e-4)


def test_fine_tuning_is_that_of_the_cpu():
    batch, config = (images(16), torch.arange(16) % 5), ldrf.FinetuneConfig(epochs=1, batch=8, labels=1.0)
    slim = ldrf.prune(make(Chain), [batch], keep={"conv2": 0.5}, config=LIGHT).model
    wanted = ldrf.finetune(slim, make(Chain), [batch], config=config)
    with pretend_device.seen() as state:
        mine = ldrf.finetune(there(slim), make(Chain), [batch], config=config)
        assert state.convolutions() > 0 and next(mine.model.parameters()).device.type == "pretend"
        for one, other in zip(outputs(mine.model, batch[0]), outputs(wanted.model, batch[0]), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
        back = ldrf.finetune(slim, make(Chain), [batch], config=config, device="pretend")
        assert next(back.model.parameters()).device == CPU


@pytest.mark.slow
def test_a_model_of_a_device_is_saved_loaded_and_exported(tmp_path: Path):
    with pretend_device.seen():
        model = there(make(Chain))
        result = ldrf.prune(model, [images(16)], keep={"conv2": 0.5}, config=LIGHT)
        ldrf.save(result, tmp_path / "slim")
        assert next(ldrf.load(tmp_path / "slim", model).parameters()).device.type == "pretend"
        onto_cpu = ldrf.load(tmp_path / "slim", make(Chain))
        torch.testing.assert_close(outputs(onto_cpu, images(4)), outputs(result.model, images(4)))
        assert ldrf.export(result, tmp_path / "slim.safetensors").error == 0
        with pytest.raises(LdrfError, match="Only .pt2 files are made for a device"):
            ldrf.export(result, tmp_path / "slim.onnx", device="pretend")


def test_timing_waits_for_the_device_and_tells_its_memory():
    with pretend_device.seen() as state, pytest.MonkeyPatch.context() as patch:
        waits: list[Any] = []
        patch.setattr(torch.accelerator, "synchronize", waits.append)
        model = there(make(Chain))
        timed = bench(model, model, Inputs((images(2),), {}), batches=(2,), seconds=0.01)
        assert len(waits) > 10 and state.convolutions() > 0
    assert timed.machine["device"] == "pretend:0"
    assert timed.dense.device_memory and timed.dense.device_memory >= 0.9 * timed.dense.memory
    assert "bytes of device memory" in str(timed)
    with pretend_device.seen(), pytest.raises(LdrfError, match="onnxruntime is timed on the CPU"):
        bench(model, model, Inputs((images(2),), {}), backends=("onnxruntime",))


def test_accuracy_is_measured_where_the_model_is():
    from ldrf.measuring.accuracy import measure_accuracy

    batch = images(16), torch.arange(16) % 5
    wanted = measure_accuracy(make(Chain), [batch])
    with pretend_device.seen():
        assert measure_accuracy(there(make(Chain)), [batch]) == wanted


@pytest.mark.slow
@pytest.mark.parametrize("memory", ["1GiB", "60kB"], ids=["host", "disk"])
def test_what_the_device_has_no_budget_for_goes_to_the_host_and_then_to_disk(memory: str):
    keep, plain = {"block1.conv1": 0.5}, LIGHT
    wanted = ldrf.prune(make(Residual), [images(24)], keep=keep, config=plain)
    stores: list[tuple[int, int, int]] = []
    with pretend_device.seen(), pytest.MonkeyPatch.context() as patch:
        put = ActivationStore.put

        def noted(store: ActivationStore, key: Any, value: Tensor) -> None:
            put(store, key, value)
            stores.append((store.device_used, store.used, store.spilled))

        patch.setattr(ActivationStore, "put", noted)
        config = ldrf.PruneConfig(**{**vars(plain), "memory": memory, "device_memory": 40_000})
        mine = ldrf.prune(there(make(Residual)), [images(24)], keep=keep, config=config)
    device, host, disk = (max(sizes) for sizes in zip(*stores, strict=True))
    assert 20_000 < device <= 40_000 and host > 10_000 and (disk > 0) == (memory == "60kB")
    assert_alike(mine, wanted, images(24))


@pytest.mark.slow
def test_without_memory_the_chunk_is_halved_and_the_result_says_so():
    batch, config = images(64, shape=(3, 16, 16)), ONE_CHUNK
    wanted = ldrf.prune(make(Chain), [batch], keep={"conv2": 0.5}, config=config)
    with pretend_device.seen() as state:
        model = there(make(Chain))
        state.limit = state.used + 2_000_000  # 32 images take three million bytes
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            mine = ldrf.prune(model, [batch], keep={"conv2": 0.5}, config=config)
        assert len({str(w.message) for w in caught if "ran out of memory" in str(w.message)}) == 1
    assert mine.computed is not None and mine.computed.halvings > 0 and mine.computed.chunk < 32
    assert "fewer than asked for" in str(mine) and mine.as_dict()["computed"]["halvings"] > 0
    assert_alike(mine, wanted, batch, 1e-3)  # sums of other chunks


@pytest.mark.slow
def test_memory_that_runs_out_in_a_late_stage_keeps_the_units_that_are_solved():
    units: list[int] = []
    asked: dict[str, Any] = {"keep": HALVES, "config": LIGHT}
    wanted = ldrf.prune(make(Residual), [images(24)], **asked)
    with pretend_device.seen() as state:
        model = there(make(Residual))

        def run_out(event: str, data: dict[str, Any]) -> None:
            if event == "unit":
                units.append(data["index"])
                if len(units) == 2:
                    raise torch.OutOfMemoryError("once")

        with pytest.warns(LdrfWarning, match="going on with fewer images"):
            mine = ldrf.prune(model, [images(24)], **asked, on_event=run_out)
        assert state.convolutions() > 20
    assert units == [0, 1] and [h.name for h in mine.history] == [h.name for h in wanted.history]
    assert mine.computed is not None and mine.computed.chunk == 4


def test_a_device_without_room_for_one_image_or_for_the_model_is_an_error():
    with pretend_device.seen() as state:
        model, batch = there(make(Chain)), images(2, shape=(3, 64, 64))
        state.limit = state.used + 300_000
        with pytest.raises(LdrfError, match="a single image is too much"), pytest.warns(LdrfWarning):
            ldrf.prune(model, [batch], speedup=1.5, config=QUICK)
        state.limit = state.used + 1000
        with pytest.raises(LdrfError, match="has no room for a copy of Chain: .* offload=True"):
            ldrf.prune(model, [images(2)], speedup=1.5, config=QUICK)


@pytest.mark.slow
def test_with_offload_weights_stay_in_the_hosts_memory():
    torch.manual_seed(0)
    layers = [nn.Linear(6, 64), *(nn.Linear(64, 64) for _ in range(5)), nn.Linear(64, 4)]
    model = nn.Sequential(*(part for layer in layers for part in (layer, nn.ReLU()))).eval()
    batch, keep = torch.randn(24, 6), {"8": 0.5}
    plain = ldrf.PruneConfig(solver="closed-form", chunk=8, selection="weight", device_memory=0)
    wanted = ldrf.prune(model, [batch], keep=keep, config=plain)
    peaks = []
    for offload in (False, True):
        with pretend_device.seen() as state:
            used, config = state.used, ldrf.PruneConfig(**{**vars(plain), "offload": offload})
            mine = ldrf.prune(model, [batch], keep=keep, config=config, device="pretend")
            assert mine.computed is not None and mine.computed.peak_bytes is not None
            peaks.append(mine.computed.peak_bytes - used)
        assert_alike(mine, wanted, batch)
    assert peaks[1] < 0.8 * peaks[0], peaks


@pytest.mark.slow
def test_solves_go_to_the_cpu_where_the_device_has_no_float64():
    wanted = ldrf.prune(make(VitBlock), [images(16)], speedup=1.3, config=QUICK)
    with pretend_device.seen(has_float64=False) as state:
        mine = ldrf.prune(there(make(VitBlock)), [images(16)], speedup=1.3, config=QUICK)
        assert state.convolutions() > 10
        assert_alike(mine, wanted, images(16))


@pytest.mark.slow
def test_a_run_that_was_killed_on_one_device_goes_on_on_another(tmp_path: Path):
    class Killed(Exception):
        pass

    def kill(event: str, data: dict[str, Any]) -> None:
        if event == "unit" and data["index"] == 0:
            raise Killed

    asked: dict[str, Any] = {"keep": HALVES, "config": LIGHT}
    wanted = ldrf.prune(make(Residual), [images(16)], **asked)
    for begun, resumed in (("cpu", "pretend"), ("pretend", "cpu")):
        with pretend_device.seen():
            out = tmp_path / begun
            with pytest.raises(Killed):
                ldrf.prune(make(Residual).to(begun), [images(16)], **asked, out=out, on_event=kill)
            mine = ldrf.prune(make(Residual).to(resumed), [images(16)], **asked, out=out, resume=True)
            assert next(mine.model.parameters()).device.type == resumed
            assert_alike(mine, wanted, images(16))


@pytest.mark.slow
def test_with_bfloat16_passes_are_rounded_and_solves_are_not():
    settings = [{**vars(QUICK), "metric": "embedding", "precision": p} for p in ("float32", "bfloat16")]
    exact, rounded = (
        ldrf.prune(make(VitBlock), [images(24)], speedup=1.3, config=ldrf.PruneConfig(**own)) for own in settings
    )
    assert {p.dtype for p in rounded.model.parameters()} == {torch.float32}
    assert rounded.held_out is not None and exact.held_out is not None
    assert rounded.held_out.reconstructed < 1.3 * exact.held_out.reconstructed + 0.01
    assert not torch.equal(outputs(rounded.model, images(4))[0], outputs(exact.model, images(4))[0])


def test_an_unknown_precision_is_refused():
    with pytest.raises(LdrfError, match="The 'precision' must be one of auto, float32, bfloat16"):
        ldrf.PruneConfig(precision="float16")  # pyright: ignore
