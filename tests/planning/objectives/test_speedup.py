"""MACs of a plan, priced without running it, are those counted on the model that was cut."""

import copy

import torch
from networks import Chain, Residual

from ldrf.planning.objectives.speedup import ENTRY
from ldrf.tracing.counting import count_macs
from ldrf.units.module_surgery import cut_plainly


def test_the_price_of_a_plan_is_the_count_of_the_cut_model(network):
    for kind in (Chain, Residual):
        net = network(kind)
        kept = {unit.name: torch.arange(unit.width // 2) for unit in net.units}
        cut = copy.deepcopy(net.model)
        cut_plainly(cut, net.units, kept)
        cost = ENTRY.cost(net)
        assert cost.at({}) == count_macs(net.model, net.example)
        assert cost.at({name: len(neurons) for name, neurons in kept.items()}) == count_macs(cut, net.example)


def test_its_ratio_is_called_speedup():
    assert ENTRY.label == "speedup"
