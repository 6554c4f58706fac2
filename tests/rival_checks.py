"""What the tests of several methods share: findings made once, and the check that full width is the identity."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import ldrf
from ldrf.calibration.store import ActivationStore
from ldrf.calibration.survey import survey
from ldrf.planning.findings import Findings
from ldrf.planning.plan import Plan
from ldrf.reconstruction.lockstep import Lockstep
from ldrf.reconstruction.metric import unit_metrics
from ldrf.registry import METHODS
from ldrf.runtime.progress import progress

RIVALS = [name for name in METHODS.names if name != "ldrf"]
UNLABELLED = [name for name in RIVALS if not METHODS.find(name).labelled]
CONFIG = ldrf.PruneConfig()
KNOWN: dict[int, Any] = {}


@cache
def _findings(key: int) -> Findings:
    net = KNOWN[key]
    surveys = survey(net.trace, net.dense, net.units, net.calibration, 0, progress)
    labels = torch.arange(net.calibration.examples) % 3
    plan = Plan({u.name: u.width for u in net.units}, {}, "readers")
    return Findings(plan, surveys, {}, unit_metrics(net, surveys, ldrf.PruneConfig()), labels)


def findings(net) -> Findings:
    """What stage 1 learns of a network, once for all tests, with labels."""
    KNOWN[id(net)] = net
    return _findings(id(net))


def halves(net) -> dict[str, int]:
    return {u.name: max(1, u.width // 2) for u in net.units}


def same(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def kept_filters(result, net, unit: str) -> list[int]:
    """Which of the dense layer's filters are in the slim one, up to the scale its norm took over."""
    slim, dense = (m.get_submodule(unit).weight.detach().flatten(1) for m in (result.model, net.model))
    likeness = F.normalize(slim) @ F.normalize(dense).T
    assert float(likeness.max(1).values.min()) > 1 - 1e-5
    return likeness.argmax(1).tolist()


def assert_identity_at_full_width(net, name: str) -> None:
    step = METHODS.find(name).begin(net, findings(net), CONFIG)
    with ActivationStore(CONFIG.memory) as store:
        walk = Lockstep(net.trace, net.dense, net.calibration, store)
        for unit in net.units:
            walk.advance(unit.start)
            solved = step(walk, unit, unit.width)
            assert solved.kept.tolist() == list(range(unit.width))
            assert solved.error < 1e-6 and solved.cut_error < 1e-9
