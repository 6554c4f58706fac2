"""What one unit's cut does to the outputs, against the same cut in the model itself."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false

import copy

import pytest
import torch
from networks import Chain

from ldrf.calibration.survey import survey
from ldrf.planning.curves import removal_curve
from ldrf.planning.sensitivity import measured_changes, output_errors, repaired, unit_trials
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


class Tokens(torch.nn.Module):
    """A residual block on rows of tokens without biases, as in a language model."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(8, 16, bias=False), torch.nn.Linear(16, 8, bias=False)
        self.head = torch.nn.Linear(8, 5, bias=False)

    def forward(self, x):
        return self.head(x + self.down(torch.relu(self.up(x))))


def test_few_long_examples_are_measured_on_one_chunk_by_running_the_trials():
    import ldrf
    from ldrf.calibration.network import read_network

    torch.manual_seed(0)
    net = read_network(Tokens().eval(), [torch.randn(4, 300, 8) for _ in range(4)], (), ldrf.PruneConfig(chunk=4))
    surveys = survey(net.trace, net.dense, net.units, net.calibration, 0, progress)
    removals = {u.name: removal_curve(net, u, surveys[u.name], ldrf.PruneConfig()) for u in net.units}
    trial = {u.name: u.width // 2 for u in net.units}
    errors = output_errors(net, surveys, removals, trial, 1e-4, 256, progress)
    trials = unit_trials(net, surveys, removals, trial, 1e-4)
    assert errors == measured_changes(net, trials, sorted(net.calibration.held_out)[:1], progress, "trials")


def test_a_layer_without_a_bias_is_repaired_without_a_constant():
    import ldrf
    from ldrf.calibration.network import read_network

    torch.manual_seed(0)
    net = read_network(Tokens().eval(), [torch.randn(8, 20, 8) + 1 for _ in range(4)], (), ldrf.PruneConfig(chunk=8))
    surveys = survey(net.trace, net.dense, net.units, net.calibration, 0, progress)
    (unit,) = net.units
    kept = removal_curve(net, unit, surveys[unit.name], ldrf.PruneConfig()).kept(8)
    weight, bias = repaired(unit.consumers[0], surveys[unit.name].moments[0], net.dense, kept, 1e-8)
    gram = surveys[unit.name].moments[0].gram[:16, :16]
    whole = net.dense.layer(unit.consumers[0].layer.node)[0].T.double()
    wanted = torch.linalg.solve(gram[kept][:, kept], gram[kept] @ whole)
    assert not bias.any()
    assert torch.allclose(weight.T[kept].double(), wanted, atol=1e-4)
