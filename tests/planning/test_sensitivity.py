"""What one unit's cut does to the outputs, against the same cut in the model itself."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false

import copy

import pytest
import torch
from networks import Chain

from ldrf.calibration.survey import survey
from ldrf.planning.curves import removal_curve
from ldrf.planning.sensitivity import measured_changes, repaired, unit_trials
from ldrf.runtime.progress import progress


def test_the_change_of_the_outputs_is_that_of_the_cut_model(network):
    import ldrf

    net, config = network(Chain), ldrf.PruneConfig()
    surveys = survey(net.trace, net.dense, net.units, net.calibration, 0, progress)
    removals = {u.name: removal_curve(net, u, surveys[u.name], config) for u in net.units}
    trial = {"conv1": 12, "conv2": 6}
    trials = unit_trials(net, surveys, removals, trial, config.damping)
    measured = measured_changes(net, trials, sorted(net.calibration.held_out), progress, "trials")
    assert measured["conv1"] == pytest.approx(0, abs=1e-6), "nothing is cut"

    unit = net.units[1]
    kept = removals["conv2"].kept(6)
    weight, bias = repaired(unit.consumers[0], surveys["conv2"].moments[0], net.dense, kept, config.damping)
    gone = [i for i in range(unit.width) if i not in kept.tolist()]
    assert not weight[:, gone].any(), "cut neurons are read no more"
    model = copy.deepcopy(net.model).eval()
    model.fc.weight.data, model.fc.bias.data = weight, bias
    wanted, held_out = 0.0, sorted(net.calibration.held_out)
    with torch.no_grad():
        for index in held_out:
            x = net.calibration.chunks[index].args[0]
            dense = net.model.eval()(x)
            spread = (dense - dense.mean(0)).square().sum()
            wanted += float((model(x) - dense).square().sum() / spread) / len(held_out)
    assert measured["conv2"] == pytest.approx(wanted, rel=1e-3)
