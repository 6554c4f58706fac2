"""Error curves: what least squares leaves at every width, and its weight in the network's outputs."""

import pytest
import torch
from networks import Chain, VitBlock

import ldrf
from ldrf.calibration.survey import survey
from ldrf.planning.curves import output_curves, removal_curve, removal_curves
from ldrf.planning.sensitivity import output_errors
from ldrf.runtime.progress import progress
from ldrf.units.columns import neuron_columns
from ldrf.units.targets import Target

CONFIG = ldrf.PruneConfig(allocation="error")


def surveyed(net):
    return survey(net.trace, net.dense, net.units, net.calibration, 0, progress)


def test_a_curve_is_what_least_squares_leaves_at_every_width(network):
    """Against dense algebra: the residual of the best weights on the kept columns, relative to the variance."""
    net = network(Chain)
    unit = net.units[1]
    moments = surveyed(net)[unit.name].moments[0]
    removal = removal_curve(net, unit, surveyed(net)[unit.name], CONFIG)
    weight = net.dense.layers[unit.consumers[0].layer.node][0].flatten(1).T.double()
    d = len(weight)
    mean = moments.gram[:d, d] / moments.rows
    covariance = moments.gram[:d, :d] / moments.rows - torch.outer(mean, mean)
    variance = float((weight * (covariance @ weight)).sum())
    columns = neuron_columns(unit.consumers[0], unit.width)
    for width in (unit.width, 12, 8, 4):
        kept = columns[removal.kept(width)].flatten()
        best = torch.linalg.lstsq(covariance[kept][:, kept], covariance[kept] @ weight).solution
        left = weight.clone()
        left[kept] -= best
        error = float((left * (covariance @ left)).sum()) / variance
        assert float(removal.errors[width]) == pytest.approx(error, rel=0.05, abs=2e-3)


@pytest.mark.slow
def test_curves_fall_with_the_width_and_end_at_zero(network):
    net = network(VitBlock)
    for removal in removal_curves(net, Target("speedup", 1.2), surveyed(net), CONFIG).values():
        assert bool((removal.errors.diff() <= 1e-9).all()) and float(removal.errors[-1]) == pytest.approx(0, abs=1e-9)
        assert sorted(removal.order.tolist()) == list(range(len(removal.order)))


def test_only_units_that_are_cut_have_a_curve_where_widths_are_given(network):
    net = network(Chain)
    asked = Target(widths={"conv2": 8})
    assert removal_curves(net, asked, surveyed(net), CONFIG).keys() == {"conv2"}
    assert removal_curves(net, asked, surveyed(net), CONFIG, picks=False) == {}


def test_output_curves_pass_through_what_was_measured(network):
    net = network(Chain)
    surveys = surveyed(net)
    removals = removal_curves(net, Target("speedup", 1.2), surveys, CONFIG)
    halves = {unit.name: unit.width // 2 for unit in net.units}
    measured = output_errors(net, surveys, removals, halves, CONFIG.damping, 256, progress)
    curves = output_curves(net, surveys, removals, CONFIG)
    for name, width in halves.items():
        assert float(curves[name][width]) == pytest.approx(measured[name], rel=1e-6)
