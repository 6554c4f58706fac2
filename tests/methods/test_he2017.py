"""LASSO and least squares repair what they cut, also on residual streams."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false

import pytest
import torch
from networks import (
    Bottleneck,
    Chain,
    Residual,
    images,
    make,
)
from rival_checks import assert_identity_at_full_width, halves

import ldrf
from ldrf.calibration.network import read_network


@pytest.mark.slow
@pytest.mark.parametrize("name", ["he2017", "thinet", "liu2017"])
def test_residual_streams_are_cut_and_repaired(name):
    config = ldrf.PruneConfig(coupled=True)
    net = read_network(make(Bottleneck), [images(32)], (), config)
    unit = next(u for u in net.units if u.coupled)
    assert_identity_at_full_width(net, name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ldrf.run.read_network", lambda *_: net)
        result = ldrf.prune(net.model, [], widths=halves(net), config=config, method=name)
    assert result.model.fc.in_features == unit.width // 2
    told = next(h for h in result.history if h.name == unit.name)
    assert told.error < told.cut_error if name != "liu2017" else told.error == told.cut_error


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Chain, Residual])
def test_he2017_is_closer_to_the_dense_net_than_cutting(network, prune_known, kind):
    net, fresh = network(kind), images(64, seed=11)
    with torch.no_grad():
        gaps = {
            name: float((prune_known(kind, widths=halves(net), method=name).model(fresh) - net.model(fresh)).norm())
            for name in ("he2017", "li2017", "random")
        }
    assert gaps["he2017"] < 0.6 * min(gaps["li2017"], gaps["random"])
