"""Neurons are drawn at random, the same for the same seed."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false

from networks import (
    Chain,
)
from rival_checks import halves, same

import ldrf


def test_it_is_its_criterion_without_a_solver(network, prune_known):
    widths = halves(network(Chain))
    config = ldrf.PruneConfig(solver="none", selection="random")
    rival, engine = prune_known(Chain, widths=widths, method="random"), prune_known(Chain, widths=widths, config=config)
    assert same(rival.model, engine.model)
    assert [h.error for h in rival.history] == [h.cut_error for h in engine.history]
