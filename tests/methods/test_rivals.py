"""The rival methods: at full width nothing changes, what they keep is what their papers say, repairs repair."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false

import json
from functools import cache
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from networks import (
    CASES,
    Bottleneck,
    Branches,
    Carriers,
    Case,
    Chain,
    Gated,
    Grouped,
    Mlp,
    Residual,
    TwoInputs,
    UNet,
    images,
    make,
)
from torch import nn

import ldrf
from ldrf.calibration.network import read_network
from ldrf.calibration.store import ActivationStore
from ldrf.calibration.survey import survey
from ldrf.methods.li2017 import filter_norms
from ldrf.methods.liu2017 import norm_scales
from ldrf.methods.molchanov2017 import score, taylor_terms
from ldrf.methods.shared.method import take_labels
from ldrf.planning.findings import Findings
from ldrf.planning.plan import Plan
from ldrf.reconstruction.lockstep import Lockstep
from ldrf.reconstruction.metric import unit_metrics
from ldrf.registry import METHODS
from ldrf.runtime.progress import progress

RIVALS = [name for name in METHODS.names if name != "ldrf"]
UNLABELLED = [name for name in RIVALS if not METHODS.find(name).labelled]
CONFIG = ldrf.PruneConfig()
KNOWN: dict[int, Any] = {}


@cache
def _findings(key: int) -> Findings:
    net = KNOWN[key]
    surveys = survey(net.trace, net.dense, net.units, net.calibration, 0, progress)
    labels = torch.arange(net.calibration.examples) % 3
    plan = Plan({u.name: u.width for u in net.units}, {}, "readers")
    return Findings(plan, surveys, {}, unit_metrics(net, surveys, ldrf.PruneConfig()), labels)


def findings(net) -> Findings:
    """What stage 1 learns of a network, once for all tests, with labels."""
    KNOWN[id(net)] = net
    return _findings(id(net))


def halves(net) -> dict[str, int]:
    return {u.name: max(1, u.width // 2) for u in net.units}


def same(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def kept_filters(result, net, unit: str) -> list[int]:
    """Which of the dense layer's filters are in the slim one, up to the scale its norm took over."""
    slim, dense = (m.get_submodule(unit).weight.detach().flatten(1) for m in (result.model, net.model))
    likeness = F.normalize(slim) @ F.normalize(dense).T
    assert float(likeness.max(1).values.min()) > 1 - 1e-5
    return likeness.argmax(1).tolist()


def assert_identity_at_full_width(net, name: str) -> None:
    step = METHODS.find(name).begin(net, findings(net), CONFIG)
    with ActivationStore(CONFIG.memory) as store:
        walk = Lockstep(net.trace, net.dense, net.calibration, store)
        for unit in net.units:
            walk.advance(unit.start)
            solved = step(walk, unit, unit.width)
            assert solved.kept.tolist() == list(range(unit.width))
            assert solved.error < 1e-6 and solved.cut_error < 1e-9


@pytest.mark.parametrize("name", RIVALS)
@pytest.mark.parametrize("kind", [Chain, Residual])
def test_a_unit_kept_whole_has_no_error(network, name, kind):
    assert_identity_at_full_width(network(kind), name)


@pytest.mark.parametrize("name", ["he2017", "thinet", "li2017"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_any_network_has_no_error_at_full_width_and_is_cut_to_half(network, prune_known, case: Case, name):
    net = network(case.kind)
    assert_identity_at_full_width(net, name)
    result = prune_known(case.kind, widths=halves(net), method=name)
    assert result.widths == halves(net)
    assert all(torch.isfinite(p).all() for p in result.model.parameters())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_neuron_of_any_network_has_a_score(network, case: Case):
    net, labelled = network(case.kind), case.kind not in (UNet, Branches, TwoInputs)
    for name in [n for n in RIVALS if n not in ("he2017", "thinet") and (labelled or not METHODS.find(n).labelled)]:
        step = METHODS.find(name).begin(net, findings(net), CONFIG)
        with ActivationStore(CONFIG.memory) as store:
            walk = Lockstep(net.trace, net.dense, net.calibration, store)
            walk.advance(net.units[-1].start)
            solved = step(walk, net.units[-1], 1)
        assert len(solved.kept) == 1 and 0 <= int(solved.kept) < net.units[-1].width and solved.error < torch.inf


@pytest.mark.parametrize("name", ["he2017", "thinet", "liu2017"])
def test_residual_streams_are_cut_and_repaired(name):
    config = ldrf.PruneConfig(coupled=True)
    net = read_network(make(Bottleneck), [images(32)], (), config)
    unit = next(u for u in net.units if u.coupled)
    assert_identity_at_full_width(net, name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ldrf.run.read_network", lambda *_: net)
        result = ldrf.prune(net.model, [], widths=halves(net), config=config, method=name)
    assert result.model.fc.in_features == unit.width // 2
    told = next(h for h in result.history if h.name == unit.name)
    assert told.error < told.cut_error if name != "liu2017" else told.error == told.cut_error


def test_a_neuron_of_several_outputs_has_the_sum_of_their_scores(network):
    net = network(Grouped)
    unit = next(u for u in net.units if u.name == "conv1")
    assert unit.width < unit.producer.outputs
    one = torch.zeros(unit.width, len(unit.rows))
    one[torch.as_tensor(unit.rows), torch.arange(len(unit.rows))] = 1
    norms, scales = net.model.conv1.weight.detach().abs().sum((1, 2, 3)), net.model.bn1.weight.detach().abs()
    torch.testing.assert_close(filter_norms(net, unit), one @ norms)
    torch.testing.assert_close(norm_scales(net, unit), one @ scales)


def test_filter_norms_of_a_transposed_convolution_are_those_of_its_outputs(network):
    net = network(UNet)
    unit = next(u for u in net.units if u.name == "up1")
    torch.testing.assert_close(filter_norms(net, unit), net.model.up1.weight.detach().abs().sum((0, 2, 3)))


def test_taylor_terms_of_halves_that_gate_each_other_add_up(network):
    """Removing a neuron removes its value and its gate: both first-order terms count."""
    net = network(Gated)
    unit, chunk = next(u for u in net.units if u.name == "both"), net.calibration.chunks[0]
    labels = torch.arange(chunk.rows) % 5
    said = {}
    hook = net.model.both.register_forward_hook(lambda _, __, out: said.update(out=out))
    loss = F.cross_entropy(net.model(*chunk.args), labels, reduction="sum")
    hook.remove()
    (slope,) = torch.autograd.grad(loss, said["out"])
    terms = (said["out"] * slope).mean(1).detach()
    expected = (terms[:, :10] + terms[:, 10:]).abs()
    torch.testing.assert_close(taylor_terms(net, chunk, labels)[unit.name], expected, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("name", UNLABELLED)
def test_full_widths_are_the_identity(network, prune_known, name):
    result = prune_known(Residual, widths={}, method=name)
    assert result.history == () and same(result.model, network(Residual).model)


@pytest.mark.parametrize("name", UNLABELLED)
def test_the_asked_widths_are_obeyed_and_recorded(prune_known, name):
    result = prune_known(Chain, widths={"conv1": 5}, method=name)
    assert result.widths == {"conv1": 5, "conv2": 16} and result.model.conv1.out_channels == 5
    assert [h.name for h in result.history] == ["conv1"]  # what is not cut is left alone
    assert result.method == name and str(result).startswith(f"method: {name}\n")
    told = json.loads(json.dumps(result.as_dict()))
    assert told["method"] == name and "solver" not in told["config"] and told["config"]["seed"] == 0


@pytest.mark.parametrize(
    ("name", "criterion"), [("hu2016", "apoz"), ("activation", "activation"), ("random", "random")]
)
def test_simple_methods_are_their_criterion_without_a_solver(network, prune_known, name, criterion):
    widths = halves(network(Chain))
    config = ldrf.PruneConfig(solver="none", selection=criterion)
    rival, engine = prune_known(Chain, widths=widths, method=name), prune_known(Chain, widths=widths, config=config)
    assert same(rival.model, engine.model)
    assert [h.error for h in rival.history] == [h.cut_error for h in engine.history]


def test_filter_norms_are_the_engines_where_no_norm_follows(network, prune_known):
    widths = halves(network(Mlp))
    config = ldrf.PruneConfig(solver="none", selection="weight")
    assert same(
        prune_known(Mlp, widths=widths, method="li2017").model, prune_known(Mlp, widths=widths, config=config).model
    )


def test_filter_norms_and_norm_scales_are_the_stored_ones(network, prune_known):
    net = network(Chain)
    norms, scales = net.model.conv2.weight.detach().abs().sum((1, 2, 3)), net.model.bn2.weight.detach().abs()
    for name, scores in (("li2017", norms), ("liu2017", scales)):
        result = prune_known(Chain, widths={"conv2": 6}, method=name)
        assert kept_filters(result, net, "conv2") == scores.argsort(descending=True)[:6].sort().values.tolist()


def test_norm_scales_are_found_behind_linear_layers_and_missed_where_there_are_none(network):
    net = network(Carriers)
    found = {unit.name: norm_scales(net, unit) for unit in net.units}
    assert found["conv1"] is None and found["conv2"] is None
    assert torch.equal(found["fc1"], net.model.bn2.weight.detach().abs())


@pytest.mark.parametrize("kind", [Chain, Residual, Branches])
def test_repairs_help_on_held_out_images(network, prune_known, kind):
    widths = halves(network(kind))
    results = {name: prune_known(kind, widths=widths, method=name) for name in ("he2017", "thinet")}
    ratio = {
        name: sum(h.error for h in result.history) / sum(h.cut_error for h in result.history)
        for name, result in results.items()
    }
    assert ratio["he2017"] < 0.8 and ratio["thinet"] < 0.98


@pytest.mark.parametrize("kind", [Chain, Residual])
def test_he2017_is_closer_to_the_dense_net_than_cutting(network, prune_known, kind):
    net, fresh = network(kind), images(64, seed=11)
    with torch.no_grad():
        gaps = {
            name: float((prune_known(kind, widths=halves(net), method=name).model(fresh) - net.model(fresh)).norm())
            for name in ("he2017", "li2017", "random")
        }
    assert gaps["he2017"] < 0.6 * min(gaps["li2017"], gaps["random"])


@pytest.mark.parametrize(("name", "allocation"), [("ldrf", "error"), ("he2017", "uniform")])
def test_widths_for_a_speedup_are_found_as_the_method_does(prune_known, name, allocation):
    config = ldrf.PruneConfig(solver="closed-form", energy=0.1)
    result = prune_known(Chain, speedup=1.6, method=name, config=config)
    assert result.config.allocation == allocation and result.speedup >= 1.6
    asked = prune_known(Chain, speedup=1.6, method=name, config=ldrf.PruneConfig(allocation="paper", solver="none"))
    assert asked.config.allocation == "paper"


def test_an_unknown_method_is_told_before_the_work():
    with pytest.raises(
        ldrf.LdrfError, match="must be one of activation, he2017, .*ldrf, .*thinet. Got 'he2018' instead"
    ):
        ldrf.prune(make(Mlp), [], speedup=2, method="he2018")


# molchanov2017


def test_taylor_terms_are_those_of_autograd_on_the_model(network):
    net = network(Chain)
    model, chunk = net.model, net.calibration.chunks[0]
    known = findings(net).labels
    assert known is not None
    labels = known[: chunk.rows]
    first = F.relu(model.bn1(model.conv1(chunk.args[0])))
    second = F.relu(model.bn2(model.conv2(F.max_pool2d(first, 2))))
    loss = F.cross_entropy(model.fc(second.mean((2, 3))), labels, reduction="sum")
    slopes = torch.autograd.grad(loss, [first, second])
    found = taylor_terms(net, chunk, labels)
    for name, value, slope in zip(("conv1", "conv2"), (first, second), slopes, strict=True):
        expected = (value * slope).mean((2, 3)).abs().detach()
        torch.testing.assert_close(found[name], expected, rtol=1e-3, atol=1e-6)
    scores = score(net, findings(net), CONFIG)
    assert all(float(s.norm()) == pytest.approx(1) for s in scores.values())
    torch.testing.assert_close(scores["conv1"], F.normalize(found["conv1"].sum(0), dim=0), rtol=1e-3, atol=1e-6)


def test_taylor_terms_keep_what_the_loss_needs():
    """The neuron whose removal changes the loss least by first order goes first."""
    model, x = make(Mlp), images(32)
    batches = [(x[:16], torch.zeros(16, dtype=torch.long)), (x[16:], torch.ones(16, dtype=torch.long))]
    model.second.weight.data[:, 3] = 0  # nobody reads neuron 3 of the first layer
    result = ldrf.prune(model, batches, widths={"first": 15}, method="molchanov2017")
    kept = torch.tensor([i for i in range(16) if i != 3])
    assert torch.equal(result.model.first.weight, model.first.weight[kept])
    torch.testing.assert_close(result.model(x), model(x))


@pytest.mark.parametrize(
    "batch", [images(8), (images(8), torch.zeros(8)), {"x": images(8)}], ids=["x", "float", "dict"]
)
def test_taylor_needs_labels(batch):
    with pytest.raises(ldrf.LdrfError, match="'molchanov2017' needs batches with labels") as caught:
        ldrf.prune(make(Chain), [batch], widths={"conv1": 6}, method="molchanov2017")
    assert "\n" not in str(caught.value)


def test_taylor_needs_labels_of_the_models_classes(network):
    net = network(Chain)
    with pytest.raises(ldrf.LdrfError, match="needs labels from 0 to 4. Got 0 to 7 instead"):
        taylor_terms(net, net.calibration.chunks[0], torch.arange(net.calibration.chunks[0].rows) % 8)


def test_taylor_needs_a_single_output_of_scores(network):
    net = network(TwoInputs)
    with pytest.raises(ldrf.LdrfError, match="needs a model with one output of scores"):
        taylor_terms(net, net.calibration.chunks[0], torch.zeros(net.calibration.chunks[0].rows, dtype=torch.long))


def test_labels_are_left_alone_for_methods_that_do_not_ask():
    batches = iter([(images(4), torch.arange(4))])
    given, labels = take_labels(METHODS.find("he2017"), make(Mlp), batches)
    assert given is batches and labels is None
    given, labels = take_labels(METHODS.find("molchanov2017"), make(Mlp), batches)
    assert labels is not None and labels.tolist() == [0, 1, 2, 3] and len(list(given)) == 1
