"""Networks with residual branches left out: against the same network written by hand, on disk, exported and timed."""

import copy
from functools import cache

import pytest
import torch
from fake_runtime import FakeClock
from networks import Deep, Heads, Inverted, Residual, Tokens, images, make
from torch import Tensor

import ldrf
from ldrf.calibration.network import read_network
from ldrf.errors import LdrfError
from ldrf.registry import RUNTIMES
from ldrf.report import write_report
from ldrf.units.left_out import LeftOut

PLAIN = ldrf.PruneConfig(depth=True, solver="none", joint_steps=0)
QUICK = ldrf.PruneConfig(depth=True, solver="closed-form")
BATCHES = (images(32), images(24, 1))


@cache
def without_two() -> ldrf.PruneResult:
    """Deep with its second block left out, all else cut by nothing and solved by nothing."""
    return ldrf.prune(make(Deep), BATCHES, widths={"two.conv1": 0}, config=PLAIN)


def test_the_slim_model_is_the_dense_one_with_the_mean_of_the_branch():
    result, dense = without_two(), make(Deep)
    seen: list[Tensor] = []
    dense.two.bn2.register_forward_hook(lambda _m, _x, y: seen.append(y.clone()))  # pyright: ignore
    with torch.no_grad():
        dense(torch.cat(BATCHES))
        mean, x = seen[0].mean((0, 2, 3)).view(1, -1, 1, 1), images(7, 5, (3, 10, 10))
        stream = torch.relu(dense.one(torch.relu(dense.stem(x))) + mean)  # pyright: ignore
        stream = stream + dense.leave(torch.relu(dense.enter(torch.relu(dense.norm(stream)))))  # pyright: ignore
        wanted = dense.fc(torch.relu(dense.head(stream)).mean((2, 3)))  # pyright: ignore
        torch.testing.assert_close(result.model(x), wanted, rtol=1e-4, atol=1e-4)
    assert result.widths == {"one.conv1": 24, "two.conv1": 0, "enter": 24, "head": 8}
    assert "left out with its branch" in str(result) and type(result.model) is Deep
    assert list(result.model.state_dict()) == list(dense.state_dict())


@pytest.mark.parametrize("kind", [Inverted, Heads, Tokens])
def test_any_branch_can_go_with_all_streams_cut(kind):
    """What is solved for is what the model computes: ``verify`` raises where it is not."""
    model = make(kind)
    config = ldrf.PruneConfig(depth=True, coupled=True, solver="closed-form")
    network = read_network(model, BATCHES, (), config)
    units = {u.name: u.width for u in network.units}
    branch = network.branches[-1]
    widths = {name: max(1, 3 * width // 4) for name, width in units.items()} | {branch.units[0]: 0}
    result = ldrf.prune(model, BATCHES, widths=widths, config=config)
    assert all(result.widths[name] == 0 for name in branch.units if name in units)
    assert any(isinstance(module, LeftOut) for module in result.model.modules())
    assert result.macs[1] < result.macs[0] and result.model(images(3)).shape == (3, 5)


def test_saved_and_loaded_it_is_the_same_and_a_damaged_record_is_told(tmp_path):
    result, x = without_two(), images(5)
    ldrf.save(result, tmp_path / "slim")
    loaded = ldrf.load(tmp_path / "slim", make(Deep, 1))
    assert torch.equal(loaded(x), result.model(x))
    ldrf.save(loaded, tmp_path / "again")
    assert torch.equal(ldrf.load(tmp_path / "again", make(Deep, 2))(x), result.model(x))
    with pytest.raises(LdrfError, match="Deep"):
        ldrf.load(tmp_path / "slim", make(Residual))


def test_exported_files_do_not_contain_the_branch(tmp_path):
    onnx = pytest.importorskip("onnx")
    result = without_two()
    ldrf.export(result, tmp_path / "slim.onnx")
    kinds = [node.op_type for node in onnx.load(tmp_path / "slim.onnx").graph.node]
    assert kinds.count("Conv") == 6 and "Expand" not in kinds, "stem, two in the first block, enter, leave, head"
    ldrf.export(result, tmp_path / "slim.pt2")
    calls = [str(n.target) for n in torch.export.load(tmp_path / "slim.pt2").graph.nodes if n.op == "call_function"]
    assert sum("conv" in call for call in calls) == 6 and not any("new_zeros" in call for call in calls)


def test_it_trains_and_the_constant_moves():
    model = copy.deepcopy(without_two().model).train()
    before = model.two.bn2.bias.detach().clone()  # pyright: ignore
    model(images(8)).square().mean().backward()
    torch.optim.SGD(model.parameters(), 0.1).step()
    assert not torch.equal(model.two.bn2.bias, before)  # pyright: ignore


def test_a_latency_that_widths_alone_do_not_reach():
    model, ratio = make(Deep), 2.6
    with RUNTIMES.registered("fake", FakeClock(step=8).runtime()):
        where = ldrf.Deployment("fake")
        with pytest.raises(LdrfError, match="out of reach"):
            ldrf.prune(model, BATCHES, latency=ratio, deployment=where, config=ldrf.PruneConfig(coupled=False))
        config = ldrf.PruneConfig(depth=True, coupled=False, solver="closed-form")
        result = ldrf.prune(model, BATCHES, latency=ratio, deployment=where, config=config)
    assert result.latency is not None and result.latency.ratio >= ratio
    assert 0 in result.widths.values()
    gone = {layer.name: layer.slim for layer in result.latency.layers if layer.slim == 0}
    assert gone, "layers of a branch that is left out take no time"


def test_by_macs_a_branch_that_does_nothing_goes_first():
    model = make(Deep)
    model.two.bn2.weight.data.mul_(1e-4)  # pyright: ignore
    result = ldrf.prune(model, BATCHES, speedup=1.4, config=QUICK)
    assert result.widths["two.conv1"] == 0 and result.speedup >= 1.4


def test_without_depth_no_width_is_zero():
    with pytest.raises(LdrfError, match=r"from 1 to 20\. Got 0 instead \(0 leaves a residual branch out, with depth"):
        ldrf.prune(make(Deep), BATCHES, widths={"two.conv1": 0})


def test_a_network_without_a_branch_is_reported_and_fine_tuned(tmp_path):
    result = without_two()
    ldrf.save(result, tmp_path / "slim")
    page = write_report([tmp_path / "slim"]).read_text()
    assert "left out" in page and 'data-value="0"' in page
    tuned = ldrf.finetune(result, make(Deep), [images(32)], config=ldrf.FinetuneConfig(epochs=1, batch=8))
    assert tuned.model.state_dict().keys() == result.model.state_dict().keys()
    assert tuned.ended >= tuned.began
