"""The whole method in one call: targets are met, what is protected stays, runs repeat, and the maths is sound."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false

import copy
from dataclasses import replace

import pytest
import torch
from fake_runtime import FakeClock, network_seconds
from networks import (
    CASES,
    Bottleneck,
    Carriers,
    Case,
    Chain,
    Flattened,
    LinearOnly,
    Mlp,
    Normed,
    Residual,
    images,
    make,
)
from torch import nn
from torch.utils._pytree import tree_leaves

import ldrf
from ldrf.files.record import read_record
from ldrf.inputs import Inputs, read_inputs
from ldrf.registry import RUNTIMES
from ldrf.tracing.counting import count_macs, count_parameters

FAST = ldrf.PruneConfig(solver="closed-form", energy=0.1)
JOINT = ldrf.PruneConfig(steps=12, joint_steps=24, energy=0.1)


def outputs(model: nn.Module, batch) -> list[torch.Tensor]:
    with torch.no_grad():
        return tree_leaves(read_inputs(model, batch).call(model))


def wide(kind: type[nn.Module]) -> nn.Module:
    """Networks wide enough for any target to be met closely."""
    from networks import settled

    if kind is Chain:
        return settled(Chain(48, 64))
    torch.manual_seed(0)
    return settled(
        nn.Sequential(nn.Flatten(), nn.Linear(192, 80), nn.GELU(), nn.Linear(80, 60), nn.ReLU(), nn.Linear(60, 5))
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Chain, Mlp])
@pytest.mark.parametrize("allocation", ["error", "paper", "uniform"])
def test_the_speedup_is_met_within_two_percent(kind, allocation):
    model, config = wide(kind), replace(FAST, allocation=allocation, multiple=1)
    result = ldrf.prune(model, [images(32)], speedup=1.7, config=config)
    inputs = Inputs((images(2),), {})
    assert 1.7 <= result.speedup <= 1.7 * 1.02
    assert result.speedup == count_macs(model, inputs) / count_macs(result.model, inputs)
    assert all(result.ranks[n] <= w or allocation == "uniform" for n, w in result.widths.items())
    assert result.target == {"speedup": 1.7} and result.curves_of == ("outputs" if allocation == "error" else "readers")
    for name, full in result.full_widths.items():
        curve, spectrum = result.curves[name], result.spectra[name]
        assert len(curve) == full + 1 and curve[full] == 0 and (curve.diff() <= 0).all()
        assert (spectrum.diff() <= 0).all() and spectrum.square().sum() == pytest.approx(
            float(model.get_submodule(name).weight.detach().double().square().sum())
        )


@pytest.mark.slow
def test_the_parameter_ratio_is_met_within_two_percent():
    model = wide(Chain)
    result = ldrf.prune(model, [images(32)], params=2.0, config=replace(FAST, multiple=1))
    ratio = count_parameters(model) / count_parameters(result.model)
    assert 2.0 <= ratio <= 2.04
    assert result.parameters == (count_parameters(model), count_parameters(result.model))


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ({"widths": {"conv1": 5}}, {"conv1": 5, "conv2": 16}),
        ({"widths": {"conv1": 1, "conv2": 3}}, {"conv1": 1, "conv2": 3}),
        ({"keep": {"conv2": 0.25}}, {"conv1": 12, "conv2": 4}),
    ],
)
def test_explicit_widths_are_obeyed(prune_known, target, expected):
    result = prune_known(Chain, config=FAST, **target)
    assert result.widths == expected
    assert {n: result.model.get_submodule(n).weight.shape[0] for n in expected} == expected
    assert result.full_widths == {"conv1": 12, "conv2": 16}


@pytest.mark.parametrize(
    "ignore", ["conv2", ["conv[2]"], lambda name, module: name == "conv2"], ids=["name", "glob", "function"]
)
def test_an_ignored_layer_keeps_its_tensors_bit_for_bit(ignore):
    model = make(Bottleneck)
    result = ldrf.prune(model, [images(24)], keep={"stem": 0.5}, ignore=ignore, config=FAST)
    assert result.widths == {"stem": 4}
    assert torch.equal(result.model.conv2.weight, model.conv2.weight)
    assert torch.equal(result.model.bn2.running_mean, model.bn2.running_mean)
    reasons = {s.name: s.reason for s in result.skipped}
    assert reasons["conv2"] == "it is ignored" and "'conv2'" in reasons["conv1"]


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["closed-form", "joint"])
def test_one_seed_gives_the_same_bits(solver):
    config = replace(JOINT, solver=solver)
    once, again = (
        ldrf.prune(make(Residual), [images(24)], keep={"block1.conv1": 0.5}, config=config, seed=3) for _ in range(2)
    )
    assert once.seed == 3
    for one, other in zip(once.model.state_dict().values(), again.model.state_dict().values(), strict=True):
        assert torch.equal(one, other)


def test_the_caller_random_state_is_left_alone():
    model = make(LinearOnly)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    ldrf.prune(model, [images(16)], widths={"first": 8}, config=JOINT)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_full_widths_are_the_identity(prune_known, case: Case):
    model = make(case.kind)
    result = prune_known(case.kind, widths={}, config=JOINT)
    batch = case.batch(4)
    torch.testing.assert_close(outputs(result.model, batch), outputs(model, batch), rtol=1e-5, atol=1e-5)
    assert result.speedup == 1.0


@pytest.mark.parametrize("case", [c for c in CASES if c.kind is not Normed], ids=str)  # its norms feel what is cut
def test_without_a_solver_the_slim_net_is_the_dense_one_with_zeroed_columns(network, prune_known, case: Case):
    net = network(case.kind)
    config = ldrf.PruneConfig(solver="none", selection="top-k")
    widths = {u.name: max(1, u.width // 2) for u in net.units}
    result = prune_known(case.kind, widths=widths, config=config)
    masked = copy.deepcopy(net.model)
    for unit in net.units:
        for consumer in unit.consumers:
            gone = torch.as_tensor(consumer.channels) >= widths[unit.name]
            weight = masked.get_submodule(consumer.layer.name).weight.data
            weight.movedim(1 - consumer.layer.row_dim, 0)[gone] = 0
    batch = case.batch(4)
    torch.testing.assert_close(outputs(result.model, batch), outputs(masked, batch), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", [Chain, Residual, Carriers, Flattened])
def test_reconstruction_is_never_worse_than_plain_cutting(network, prune_known, kind):
    units = {u.name: u.width for u in network(kind).units}
    result = prune_known(kind, widths={n: w // 2 for n, w in units.items()}, config=JOINT)
    assert [h.name for h in result.history] == list(units)
    for unit in result.history:
        assert 0 <= unit.error <= unit.cut_error
    assert any(h.error < 0.7 * h.cut_error for h in result.history)


@pytest.mark.parametrize("kind", [Chain, Residual, Carriers])
def test_the_slim_net_is_closer_to_the_dense_one_than_plain_cutting(pruned, prune_known, network, kind):
    net, fresh = network(kind), images(64, seed=11)
    config = ldrf.PruneConfig(solver="none", selection="top-k")
    cut = prune_known(kind, widths=pruned(kind).widths, config=config)
    dense = outputs(net.model, fresh)[0]
    distance = lambda model: float((outputs(model, fresh)[0] - dense).square().mean())  # noqa: E731
    assert distance(pruned(kind).model) < 0.5 * distance(cut.model)


def test_redundant_neurons_cost_nothing():
    """Without activations a product of rank 3 needs no more than 3 neurons between its layers."""
    model = make(LinearOnly)
    config = replace(FAST, damping=1e-9)
    result = ldrf.prune(model, [images(200)], widths={"second": 10, "first": 12}, config=config)
    torch.testing.assert_close(result.model(images(4)), model(images(4)), rtol=1e-5, atol=1e-5)
    model.first.weight.data = torch.randn(12, 3) @ torch.randn(3, 192) / 14  # rank 3
    result = ldrf.prune(model, [images(200)], widths={"first": 3}, config=config)
    fresh = images(16, seed=4)
    gap = (result.model(fresh) - model(fresh)).square().mean() / model(fresh).var()
    assert float(gap.detach()) < 1e-4


@pytest.mark.slow
def test_batches_come_in_any_form():
    model, x = make(Chain), images(32)
    widths = {"conv1": 6}
    forms = [
        [x[:16], x[16:]],
        ((part, torch.zeros(16)) for part in x.split(16)),
        [{"x": x[:16], "label": 3}, {"x": x[16:], "label": 4}],
        torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, torch.zeros(32)), 16),
    ]
    states = [ldrf.prune(model, form, widths=widths, config=FAST).model.state_dict() for form in forms]
    for state in states[1:]:
        assert all(torch.equal(a, b) for a, b in zip(state.values(), states[0].values(), strict=True))


def test_a_small_memory_budget_changes_nothing(prune_known):
    widths = {"block1.conv1": 4, "block2.conv1": 6}
    large = prune_known(Residual, widths=widths, config=FAST).model.state_dict()
    small = prune_known(Residual, widths=widths, config=replace(FAST, memory=1000)).model.state_dict()
    assert all(torch.equal(large[n], small[n]) for n in large)


def test_the_result_prints_as_a_table(pruned):
    result = pruned(Residual)
    text = str(result)
    assert text == repr(result)
    for word in ("unit", "neurons", "kept", "rank", "range", "error", "block1.conv1", "fewer MACs", "\n  stem"):
        assert word in text
    assert f"{result.speedup:.2f}x" in text


@pytest.mark.parametrize("criterion", ["top-k", "random", "apoz", "activation", "weight"])
def test_every_selection_runs_to_the_asked_widths(prune_known, criterion):
    result = prune_known(Chain, widths={"conv1": 5}, config=replace(FAST, selection=criterion))
    assert result.model.conv1.out_channels == 5 and result.history[0].error <= result.history[0].cut_error


@pytest.mark.slow
@pytest.mark.parametrize("allocation", ["error", "uniform"])
def test_a_latency_is_met_on_the_clock_and_kept_through_a_resume(allocation, tmp_path, monkeypatch):
    model, config, events = wide(Chain), replace(FAST, allocation=allocation, multiple=1), []
    with RUNTIMES.registered("fake", FakeClock(step=1).runtime()):
        where = ldrf.Deployment("fake", batch=2)
        given = {"latency": 1.4, "deployment": where, "config": config, "out": tmp_path / "run"}
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr("ldrf.pipeline.stage_3", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            ldrf.prune(model, [images(32)], **given, on_event=lambda event, data: events.append((event, data)))
        assert events[0] == ("deployed", {"runtime": "fake", "batch": 2, "threads": 1})
        monkeypatch.setattr("ldrf.run.deploy", None)  # nothing is timed again
        result = ldrf.prune(model, [images(32)], **given, resume=True)
    assert result.latency is not None and 1.4 <= result.latency.ratio <= 1.4 * 1.03
    inputs = Inputs((images(2),), {})
    measured = network_seconds(model, inputs, 1) / network_seconds(result.model, inputs, 1)
    assert measured == pytest.approx(result.latency.ratio)
    assert result.headline().startswith(f"{result.latency.ratio:.2f}x faster")
    record = read_record(tmp_path / "run")
    assert record["latency"]["runtime"] == "fake" and record["target"]["latency"] == 1.4
    assert record["latency"]["dense"] == pytest.approx(1000 * network_seconds(model, inputs, 1))
