"""From a target to widths: by hand, by share, by ranks and by error curves."""

from functools import partial

import pytest
import torch
from networks import Bottleneck, Chain, Residual, make
from networks import images as pictures

import ldrf
from ldrf.calibration.network import read_network
from ldrf.calibration.survey import survey
from ldrf.planning.allocation import reachable
from ldrf.planning.curves import output_curves, removal_curves
from ldrf.planning.plan import choices_of, for_target, plan_widths
from ldrf.planning.ranks import unit_ranks, unit_spectra
from ldrf.registry import OBJECTIVES
from ldrf.runtime.progress import progress
from ldrf.units.targets import Target

LOW = ldrf.PruneConfig(energy=0.05, allocation="error")


def planned(net, target: Target, config: ldrf.PruneConfig):
    ranks = unit_ranks(net.units, unit_spectra(net.model, net.units), config.energy)
    surveys = survey(net.trace, net.dense, net.units, net.calibration, 0, progress)
    removals = removal_curves(net, target, surveys, config)
    errors = {name: removal.errors for name, removal in removals.items()}
    curves = partial(output_curves, net, surveys, removals, config)
    return plan_widths(net, target, ranks, errors, curves, config), ranks


def test_widths_by_hand_are_the_plan(network):
    plan, _ = planned(network(Chain), Target(widths={"conv1": 7}), LOW)
    assert plan.widths == {"conv1": 7, "conv2": 16} and plan.curves_of == "readers"
    assert plan.curves.keys() == {"conv1"}, "only what is cut needs a curve"


@pytest.mark.parametrize("allocation", ["error", "paper", "uniform"])
def test_every_rule_meets_the_target_inside_its_choices(network, allocation):
    net = network(Residual)
    config = ldrf.PruneConfig(energy=0.05, allocation=allocation)
    plan, ranks = planned(net, Target("speedup", 1.3), config)
    choices = choices_of(net.units, ranks, config)
    assert all(plan.widths[name] in choices[name] for name in plan.widths)
    assert plan.curves_of == ("outputs" if allocation == "error" else "readers")
    slim = ldrf.prune(net.model, [pictures(16)], widths=plan.widths, config=ldrf.PruneConfig(solver="none"))
    assert slim.speedup >= 1.3


@pytest.mark.slow
def test_a_rule_by_share_starts_at_one_neuron_and_the_others_at_the_rank(network):
    net, ranks = network(Chain), {"conv1": 5, "conv2": 6}
    by_rank, by_share = (
        choices_of(net.units, ranks, ldrf.PruneConfig(allocation=a, multiple=1)) for a in ("paper", "uniform")
    )
    assert [widths[0] for widths in by_rank.values()] == [5, 6]
    assert [widths[0] for widths in by_share.values()] == [1, 1]


@pytest.mark.slow
def test_coupled_widths_come_in_only_where_the_target_needs_them():
    net = read_network(make(Bottleneck), [pictures(16)], (), LOW)
    assert net.coupled and not any(unit.coupled for unit in net.units)
    near, spectra = for_target(net, Target("speedup", 1.1), LOW)
    assert near.units == net.units and spectra.keys() == {unit.name for unit in net.units}
    ranks = unit_ranks(net.units, spectra, LOW.energy)
    most = reachable(OBJECTIVES.find("speedup").cost(net), choices_of(net.units, ranks, LOW))
    far, spectra = for_target(net, Target("speedup", 1.01 * most), LOW)
    assert any(unit.coupled for unit in far.units) and spectra.keys() == {unit.name for unit in far.units}
    named, _ = for_target(net, Target(widths={net.coupled[0].name: 4}), LOW)
    assert any(unit.coupled for unit in named.units)
    assert all(torch.is_tensor(values) for values in spectra.values())
