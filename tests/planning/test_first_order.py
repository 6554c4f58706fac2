"""The estimate from gradients, against the change that is measured by running the network."""

import pytest
import torch
from networks import Bottleneck, Inverted, LinearOnly, Residual, VitBlock

import ldrf
from ldrf.calibration.survey import survey
from ldrf.planning import first_order
from ldrf.planning.curves import removal_curve
from ldrf.planning.first_order import estimated_changes, spreads
from ldrf.planning.sensitivity import measured_changes, output_errors, unit_trials
from ldrf.runtime.progress import progress

CONFIG = ldrf.PruneConfig()


def trials(net, cut: int):
    """Every unit by itself without ``cut`` of its neurons."""
    surveys = survey(net.trace, net.dense, net.units, net.calibration, 0, progress)
    removals = {u.name: removal_curve(net, u, surveys[u.name], CONFIG) for u in net.units}
    widths = {u.name: u.width - cut for u in net.units}
    return surveys, removals, widths, unit_trials(net, surveys, removals, widths, CONFIG.damping)


def changed(net, weights):
    return {node: pair for node, pair in weights.layers.items() if pair is not net.dense.layers[node]}


@pytest.mark.parametrize("kind", [Residual, Inverted, Bottleneck, VitBlock])
def test_small_cuts_change_the_outputs_as_estimated(network, monkeypatch, kind):
    """VitBlock has queries and keys, which are rotated: their change is one of the scores."""
    monkeypatch.setattr(first_order, "SAMPLES", 4096)
    monkeypatch.setattr(first_order, "MOST", 256)
    net = network(kind)
    surveys, removals, widths, tried = trials(net, cut=1)
    chunks = sorted(net.calibration.held_out)
    wanted = measured_changes(net, tried, chunks, progress, "trials")
    estimated = output_errors(net, surveys, removals, widths, CONFIG.damping, 256, progress)
    assert estimated.keys() == wanted.keys()
    for name, change in wanted.items():
        assert estimated[name] == pytest.approx(change, rel=0.35, abs=1e-5)


def test_it_is_exact_where_all_is_linear(network):
    """Of a linear change the mean over directions is the change itself, however large."""
    net = network(LinearOnly)
    layer = net.trace.layers[-1].node
    weight, bias = net.dense.affine(layer)
    small, large = ({layer: (weight * (1 + size), bias * (1 + size))} for size in (0.01, 3.0))
    chunks = sorted(net.calibration.held_out)
    changes = estimated_changes(net, {"small": small, "large": large}, chunks, progress)
    assert changes["large"] == pytest.approx(300**2 * changes["small"], rel=1e-3)


def test_what_has_no_gradient_is_measured(network, monkeypatch):
    net = network(Residual)
    surveys, removals, widths, tried = trials(net, cut=2)
    wanted = measured_changes(net, tried, sorted(net.calibration.held_out), progress, "trials")
    first = net.units[0].name
    monkeypatch.setattr(
        "ldrf.planning.sensitivity.estimated_changes",
        lambda *given: {name: e for name, e in estimated_changes(*given).items() if name != first},
    )
    errors = output_errors(net, surveys, removals, widths, CONFIG.damping, 256, progress)
    assert errors[first] == pytest.approx(wanted[first], rel=1e-6)


def test_outputs_without_a_gradient_give_no_estimate(network):
    net = network(Residual)
    *_, tried = trials(net, cut=2)
    layers = {name: changed(net, trial.weights) for name, trial in tried.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(first_order, "float_outputs", lambda *_: {})
        patch.setattr(first_order, "spreads", lambda *_: {})
        changes = estimated_changes(net, layers, sorted(net.calibration.held_out), progress)
    assert changes == {}


def test_every_layer_runs_a_fixed_number_of_times_however_many_units_there_are(network, monkeypatch):
    """The price grows with the depth, not with its square."""
    calls: dict[type, float] = {}
    run = first_order.run
    for kind in (LinearOnly, Bottleneck):
        net, count = network(kind), [0]

        def counting(trace, weights, nodes, values, count=count):
            count[0] += len(nodes)
            return run(trace, weights, nodes, values)

        monkeypatch.setattr(first_order, "run", counting)
        *_, tried = trials(net, cut=2)
        layers = {name: changed(net, trial.weights) for name, trial in tried.items()}
        estimated_changes(net, layers, sorted(net.calibration.held_out), progress)
        calls[kind] = count[0] / len(net.trace.nodes)
    assert calls[Bottleneck] < 1.5 * calls[LinearOnly]


def test_the_estimate_is_the_same_each_time(network):
    net = network(Residual)
    *_, tried = trials(net, cut=2)
    layers = {name: changed(net, trial.weights) for name, trial in tried.items()}
    chunks = sorted(net.calibration.held_out)
    torch.manual_seed(1)
    once = estimated_changes(net, layers, chunks, progress)
    torch.manual_seed(2)
    assert estimated_changes(net, layers, chunks, progress) == once


def test_a_single_image_has_the_spread_of_its_values():
    one = {"out": torch.tensor([[1.0, 3.0]])}
    assert spreads(one, 1)["out"] == pytest.approx(2.0) and spreads({"out": torch.ones(1, 2)}, 1)["out"] > 0
    two = {"out": torch.tensor([[1.0, 3.0], [3.0, 3.0]])}
    assert spreads(two, 2)["out"] == pytest.approx(2.0)
