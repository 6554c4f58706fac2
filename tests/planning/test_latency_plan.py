"""A plan is as fast on the clock as was asked, or says why it cannot be."""

import re

import pytest
import torch
from fake_runtime import FakeClock
from networks import Chain

from ldrf.config import Deployment, PruneConfig
from ldrf.deployment.deployed import deploy
from ldrf.errors import LdrfError
from ldrf.planning.latency_plan import needs_coupled, plan_by_latency
from ldrf.planning.plan import choices_of
from ldrf.registry import RUNTIMES
from ldrf.units.targets import read_target


@pytest.fixture
def chain(network):
    """A network in a runtime that computes channels one by one, so that widths can be as fine as time."""
    net, clock = network(Chain), FakeClock(step=1)
    choices = choices_of(net.units, {u.name: 1 for u in net.units}, PruneConfig(multiple=1))
    with RUNTIMES.registered("fake", clock.runtime()):
        yield net, choices, deploy(net.model, net.example, Deployment("fake"))


CURVES = {"conv1": torch.linspace(1, 0, 13) ** 2, "conv2": torch.linspace(2, 0, 17) ** 2}


@pytest.mark.parametrize("ratio", [1.15, 1.3, 1.5])
def test_the_measured_ratio_is_what_was_asked(chain, ratio):
    net, choices, deployed = chain
    widths, latency = plan_by_latency(net, read_target(latency=ratio), choices, deployed, CURVES)
    assert ratio <= latency.ratio <= 1.08 * ratio  # few widths lie between
    assert latency.ratio == pytest.approx(deployed.time_cut(net.units, widths).ratio(), rel=1e-6)
    assert {layer.name for layer in latency.layers} == {"conv1", "conv2", "fc"}
    errors = [error for _, error in latency.expected]
    assert errors == sorted(errors) and latency.expected[0][0] == 1.25


def test_a_time_is_a_ratio_of_the_dense_time(chain):
    net, choices, deployed = chain
    asked = 1000 * deployed.dense_seconds / 1.5
    _, latency = plan_by_latency(net, read_target(latency=f"{asked:.6f} ms"), choices, deployed, CURVES)
    assert latency.slim <= asked * (1 + 1e-9) and latency.slim > 0.9 * asked
    slow = read_target(latency="10 s")
    with pytest.raises(LdrfError, match=r"must be below the dense model's .* ms \(fake, batch 1, 1 thread\)"):
        plan_by_latency(net, slow, choices, deployed, CURVES)


def test_out_of_reach_names_the_largest_measured_ratio_and_what_is_in_the_way(chain):
    net, choices, deployed = chain
    with pytest.raises(LdrfError, match="out of reach: the largest measured ratio") as told:
        plan_by_latency(net, read_target(latency=50.0), choices, deployed, CURVES)
    smallest = {name: widths[0] for name, widths in choices.items()}
    largest = deployed.time_cut(net.units, smallest).ratio()
    assert f"is {largest:.2f} (fake" in str(told.value) and re.search(r"\d+% is outside of layers", str(told.value))
    assert needs_coupled(net, choices, read_target(latency=50.0), deployed)
    assert not needs_coupled(net, choices, read_target(latency=1.2), deployed)
