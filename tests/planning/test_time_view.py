"""A look before cutting says where the time goes."""

import pytest
from fake_runtime import FakeClock
from networks import Chain

from ldrf.config import Deployment, PruneConfig
from ldrf.deployment.deployed import deploy
from ldrf.planning.plan import choices_of
from ldrf.planning.time_view import time_view
from ldrf.registry import RUNTIMES


def test_layers_and_the_rest_are_the_whole(network):
    net, clock = network(Chain), FakeClock(step=1)
    choices = choices_of(net.units, {u.name: 1 for u in net.units}, PruneConfig(multiple=1))
    with RUNTIMES.registered("fake", clock.runtime()):
        view = time_view(net, choices, deploy(net.model, net.example, Deployment("fake", 2)))
    assert [layer.name for layer in view.layers] == ["conv1", "conv2", "fc"]
    assert all(layer.shrinks for layer in view.layers)
    text = str(view)
    assert "all else" in text and "fake, batch 2, 1 thread; the largest ratio is about" in text
    shares = [share for _, share in view.kept]
    assert shares and shares == sorted(shares, reverse=True) and 0 < shares[-1] < 1
    assert view.as_dict()["milliseconds"] == pytest.approx(view.milliseconds)
