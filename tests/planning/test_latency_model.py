"""Seconds of a plan, from tables of the layers of both neighbours, are those of the network that was cut."""

import pytest
from fake_runtime import REST, FakeClock, network_seconds
from networks import Bottleneck, Chain, Inverted

from ldrf.config import Deployment, PruneConfig
from ldrf.deployment.deployed import deploy
from ldrf.planning.latency_model import latency_model
from ldrf.planning.plan import choices_of
from ldrf.registry import RUNTIMES


@pytest.mark.parametrize("kind", [Chain, Bottleneck, Inverted])
def test_the_price_of_a_plan_is_the_time_of_the_cut_model(kind, network):
    net, clock = network(kind), FakeClock(step=4)
    choices = choices_of(net.units, {u.name: 1 for u in net.units}, PruneConfig())
    with RUNTIMES.registered("fake", clock.runtime()):
        deployed = deploy(net.model, net.example, Deployment("fake", 2))
        model = latency_model(net.trace, net.units, choices, deployed)
        assert model.fixed == pytest.approx(REST)
        assert model.at({}) == pytest.approx(network_seconds(deployed.model, deployed.inputs, 4))
        widths = {name: wide[len(wide) // 2] for name, wide in choices.items()}
        timed = deployed.time_cut(net.units, widths)
    assert model.at(widths) == pytest.approx(timed.seconds["slim"], rel=1e-3)
    name = next(iter(widths))
    whole = dict(model.full)
    assert model.saving(name, whole, widths[name]) == pytest.approx(model.at({}) - model.at({name: widths[name]}))
    assert model.change(whole, widths) == pytest.approx(model.at(widths) - model.at({}))
