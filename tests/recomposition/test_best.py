"""On held-out images a slim network is never further from the dense one than plain cutting to the same neurons."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportIndexIssue=false
# pyright: reportOptionalMemberAccess=false

import copy
import math
import warnings
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from networks import Chain, Gated, Residual, UNet, VitBlock, images, make, settled
from torch import Tensor, nn

import ldrf
from ldrf.calibration.network import Network, read_network
from ldrf.reconstruction.problem import Problem
from ldrf.reconstruction.solution import Candidate
from ldrf.reconstruction.unit_solver import Solver
from ldrf.registry import SOLVERS
from ldrf.units.module_surgery import cut_plainly

CONFIG = ldrf.PruneConfig(selection="top-k", metric="output", steps=30, multiple=1)


def misled() -> nn.Module:
    """A network whose outputs read half of what a unit's readers give, the half that plain cutting leaves as it is.

    The other half is larger and no one looks at it, so descent on the unit trades the first for it.
    """
    model = settled(
        nn.Sequential(nn.Flatten(), nn.Linear(192, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 5))
    )
    model[3].weight.data[:4, 4:] = 0
    model[3].weight.data[4:] *= 10
    model[5].weight.data[:, 4:] = 0
    return model


def same_bits(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


def held_out(network: Network) -> Tensor:
    return torch.cat([network.calibration.chunks[i].args[0] for i in sorted(network.calibration.held_out)])


def error(model: nn.Module, dense: nn.Module, x: Tensor) -> float:
    with torch.no_grad():
        return float((model(x) - dense(x)).square().sum() / dense(x).square().sum())


@pytest.mark.slow
def test_where_units_mislead_the_plainly_cut_network_is_returned():
    model, x = misled(), images(64)
    with pytest.warns(ldrf.LdrfWarning, match="plain cutting does better than reconstruction"):
        result = ldrf.prune(model, [x], widths={"1": 4}, config=CONFIG)
    judged = result.held_out
    assert result.history[0].error < result.history[0].cut_error, "the unit's own loss speaks for reconstruction"
    assert judged and judged.returned == "cut" and judged.cut < 1e-6 < judged.reconstructed
    cut = copy.deepcopy(model)
    net = read_network(model, [x], (), CONFIG)
    cut_plainly(cut, net.units, {"1": torch.arange(4)})
    assert same_bits(result.model, cut)
    assert error(result.model, model, held_out(net)) < 1e-6
    assert "Plain cutting did better on held-out images and is what is returned" in str(result)
    assert result.as_dict()["held_out"]["returned"] == "cut"


def test_the_errors_are_those_of_the_models_themselves():
    model, x = make(Chain), images(48)
    result = ldrf.prune(model, [x], widths={"conv1": 5}, config=replace(CONFIG, solver="closed-form"))
    net = read_network(model, [x], (), CONFIG)
    cut = copy.deepcopy(model)
    cut_plainly(cut, net.units, {"conv1": torch.arange(5)})
    judged = result.held_out
    assert judged and judged.returned == "reconstructed"
    assert judged.cut == pytest.approx(error(cut, model, held_out(net)), rel=1e-4)
    assert judged.reconstructed == pytest.approx(error(result.model, model, held_out(net)), rel=1e-3)
    assert f"{judged.reconstructed:.4f} ({judged.cut:.4f} if only cut)" in str(result)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"rate": 10.0, "damping": 0.0},
        {"solver": "closed-form", "damping": 0.0},
    ],
    ids=["as usual", "steps that hurt", "no damping"],
)
@pytest.mark.parametrize("kind", [Chain, Residual, Gated, VitBlock, UNet])
def test_the_slim_model_is_never_further_from_the_dense_one_than_the_cut_model(network, prune_known, kind, change):
    """Both run as they are, on the held-out images: nothing of how they were judged is looked at."""
    net = network(kind)
    widths = {u.name: max(1, u.width // 2) for u in net.units}
    config = replace(ldrf.PruneConfig(steps=3, joint_steps=6, multiple=1), **change)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*plain cutting does better", ldrf.LdrfWarning)
        slim = prune_known(kind, widths=widths, config=config).model
    x = held_out(net)
    cut = prune_known(kind, widths=widths, config=replace(config, solver="none")).model
    assert error(slim, net.model, x) <= error(cut, net.model, x) * (1 + 1e-4) + 1e-9


def lying(change: Callable[[Tensor], Tensor]) -> Solver:
    """A solver that spoils every unit's neurons and says that it made no error at all."""

    def solve(problem: Problem, cut: Candidate, config: ldrf.PruneConfig) -> list[Candidate]:
        return [Candidate("spoilt", replace(cut.solution, weight=change(cut.solution.weight)), 0.0)]

    return Solver(solve, refits_outputs=False)


@pytest.mark.parametrize(
    "change",
    [lambda w: -w, lambda w: 0 * w, lambda w: w * math.nan, lambda w: w * math.inf],
    ids=["turned round", "nothing", "nan", "infinite"],
)
def test_what_a_solver_spoils_is_never_returned(network, prune_known, change):
    net, target = network(Chain), {"widths": {"conv1": 5, "conv2": 6}}
    config = ldrf.PruneConfig(selection="top-k", multiple=1)
    with SOLVERS.registered("lying", lying(change)), pytest.warns(ldrf.LdrfWarning, match="plain cutting does better"):
        result = prune_known(Chain, config=replace(config, **{"solver": "lying"}), **target)
    assert result.history[0].way == "spoilt" and result.held_out.returned == "cut"
    cut = prune_known(Chain, config=replace(config, solver="none"), **target).model
    x = held_out(net)
    assert error(result.model, net.model, x) == pytest.approx(error(cut, net.model, x), rel=1e-4)


def test_a_rival_method_keeps_what_it_found(prune_known):
    assert prune_known(Chain, widths={"conv1": 6}, method="li2017").held_out is None
