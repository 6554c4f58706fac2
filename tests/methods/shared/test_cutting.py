"""Methods that only cut: a score for every neuron of any network, nothing changed at full width."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false

import pytest
import torch
from networks import (
    CASES,
    Branches,
    Case,
    Residual,
    TwoInputs,
    UNet,
)
from rival_checks import CONFIG, RIVALS, UNLABELLED, findings, same

from ldrf.calibration.store import ActivationStore
from ldrf.reconstruction.lockstep import Lockstep
from ldrf.registry import METHODS


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_neuron_of_any_network_has_a_score(network, case: Case):
    net, labelled = network(case.kind), case.kind not in (UNet, Branches, TwoInputs)
    for name in [n for n in RIVALS if n not in ("he2017", "thinet") and (labelled or not METHODS.find(n).labelled)]:
        step = METHODS.find(name).begin(net, findings(net), CONFIG)
        with ActivationStore(CONFIG.memory) as store:
            walk = Lockstep(net.trace, net.dense, net.calibration, store)
            walk.advance(net.units[-1].start)
            solved = step(walk, net.units[-1], 1)
        assert len(solved.kept) == 1 and 0 <= int(solved.kept) < net.units[-1].width and solved.error < torch.inf


@pytest.mark.parametrize("name", UNLABELLED)
def test_full_widths_are_the_identity(network, prune_known, name):
    result = prune_known(Residual, widths={}, method=name)
    assert result.history == () and same(result.model, network(Residual).model)
