"""The paper's own method: its selection says what the solver keeps, and the result is better than the rivals'."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false

import pytest
import torch
from networks import Chain, images
from rival_checks import findings, halves

import ldrf
from ldrf.calibration.store import ActivationStore
from ldrf.reconstruction.lockstep import Lockstep
from ldrf.registry import METHODS


def test_a_step_keeps_what_the_criterion_says(network):
    net, config = network(Chain), ldrf.PruneConfig(selection="top-k", solver="closed-form")
    step = METHODS.find("ldrf").begin(net, findings(net), config)
    with ActivationStore(config.memory) as store:
        walk = Lockstep(net.trace, net.dense, net.calibration, store)
        solved = step(walk, net.units[0], 7)
    assert solved.kept.tolist() == list(range(7))
    assert solved.error <= solved.cut_error


@pytest.mark.slow
def test_it_is_closer_to_the_dense_network_than_every_rival(network, prune_known):
    net, fresh = network(Chain), images(64, seed=11)
    gaps = {}
    for name in ("ldrf", "he2017", "thinet", "li2017"):
        slim = prune_known(Chain, widths=halves(net), method=name).model
        with torch.no_grad():
            gaps[name] = float((slim(fresh) - net.model(fresh)).norm())
    assert min(gaps, key=gaps.__getitem__) == "ldrf"
