"""On held-out images a slim network is never further from the dense one than plain cutting to the same neurons."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportIndexIssue=false
# pyright: reportOptionalMemberAccess=false

import copy
import warnings
from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from networks import Chain, images, make, settled
from torch import Tensor, nn

import ldrf
from ldrf.calibration.network import Network, read_network
from ldrf.calibration.store import ActivationStore
from ldrf.recomposition.best import choose, held_out_errors
from ldrf.reconstruction.lockstep import Lockstep
from ldrf.units.indices import cut_weights
from ldrf.units.module_surgery import cut_plainly

CONFIG = ldrf.PruneConfig(selection="top-k", metric="output", steps=30)


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


def test_where_units_mislead_the_plainly_cut_network_is_returned():
    model, x = misled(), images(64)
    with pytest.warns(ldrf.LdrfWarning, match="plain cutting does better than reconstruction"):
        result = ldrf.prune(model, [x], widths={"1": 4}, config=CONFIG)
    found = result.held_out
    assert result.history[0].error < result.history[0].cut_error, "the unit's own loss speaks for reconstruction"
    assert found and found.returned == "cut" and found.cut < 1e-6 < found.reconstructed
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
    found = result.held_out
    assert found and found.returned == "reconstructed"
    assert found.cut == pytest.approx(error(cut, model, held_out(net)), rel=1e-4)
    assert found.reconstructed == pytest.approx(error(result.model, model, held_out(net)), rel=1e-3)
    assert f"{found.reconstructed:.4f} ({found.cut:.4f} if only cut)" in str(result)


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.floats(0.2, 0.8), st.integers(0, 100))
def test_noise_in_the_solution_is_never_returned(network, share, seed):
    """Whatever a solver hands over, the network chosen is no worse than the plainly cut one."""
    net = network(Chain)
    kept = {u.name: torch.arange(max(1, round(share * u.width))) for u in net.units}
    generator = torch.Generator().manual_seed(seed)
    with ActivationStore(2**30) as store, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        walk = Lockstep(net.trace, net.dense, net.calibration, store)
        plain = cut_weights(net.trace, net.units, net.dense, kept)
        noisy = {
            node: (w + float(torch.rand(1, generator=generator)) * w.flip(0), b)
            for node, (w, b) in plain.layers.items()
            if torch.rand(1, generator=generator) < 0.3
        }
        walk.commit(plain.with_layers(noisy))
        best = choose(net, walk, kept, True)
        assert best.held_out is not None
        cut, chosen = held_out_errors(net, (plain, best.weights))
    assert chosen <= cut and min(best.held_out.cut, best.held_out.reconstructed) == chosen
    assert best.held_out.cut == cut


@pytest.mark.parametrize("odd", [float("nan"), float("inf")])
def test_a_solution_that_is_no_number_is_never_returned(network, odd):
    net = network(Chain)
    kept = {u.name: torch.arange(4) for u in net.units}
    plain = cut_weights(net.trace, net.units, net.dense, kept)
    broken = {net.units[0].producer.node: (plain.layers[net.units[0].producer.node][0] * odd, None)}
    with ActivationStore(2**30) as store, pytest.warns(ldrf.LdrfWarning, match="plain cutting"):
        walk = Lockstep(net.trace, net.dense, net.calibration, store)
        walk.commit(plain.with_layers(broken))
        assert choose(net, walk, kept, True).held_out.returned == "cut"


def test_a_rival_method_keeps_what_it_found(prune_known):
    assert prune_known(Chain, widths={"conv1": 5}, method="li2017").held_out is None
