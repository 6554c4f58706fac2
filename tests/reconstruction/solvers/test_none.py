"""Without a solver the slim network is the plainly cut one."""

import copy

import torch
from networks import Residual, images, make

import ldrf
from ldrf.calibration.network import read_network
from ldrf.units.module_surgery import cut_plainly

CONFIG = ldrf.PruneConfig(solver="none", selection="top-k", multiple=1)


def test_the_neurons_that_stay_keep_their_weights():
    model, x = make(Residual), images(32)
    widths = {"block1.conv1": 4, "block2.conv1": 5}
    result = ldrf.prune(model, [x], widths=widths, config=CONFIG)
    cut = copy.deepcopy(model)
    network = read_network(model, [x], (), CONFIG)
    cut_plainly(cut, network.units, {name: torch.arange(width) for name, width in widths.items()})
    assert [h.way for h in result.history] == ["cut", "cut"]
    with torch.no_grad():
        torch.testing.assert_close(result.model(x), cut(x), rtol=1e-4, atol=1e-5)
