"""Parameters of a plan are those of the model that was cut, norms and biases among them."""

import copy

import torch
from networks import Carriers, Chain, Residual

from ldrf.planning.objectives.params import ENTRY
from ldrf.tracing.counting import count_parameters
from ldrf.units.module_surgery import cut_plainly


def test_the_price_of_a_plan_is_the_count_of_the_cut_model(network):
    for kind in (Chain, Residual, Carriers):
        net = network(kind)
        kept = {unit.name: torch.arange(unit.width // 2) for unit in net.units}
        cut = copy.deepcopy(net.model)
        cut_plainly(cut, net.units, kept)
        cost = ENTRY.cost(net)
        assert round(cost.at({})) == count_parameters(net.model)
        assert round(cost.at({name: len(neurons) for name, neurons in kept.items()})) == count_parameters(cut)
