"""All units moving together get nearer to the dense outputs, and never lose on held-out images."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from half_cut import half_cut
from networks import Bottleneck, Branches, Chain, Gated, Heads, Inverted, Residual, UNet, VitBlock, images, make
from torch import nn

import ldrf
from ldrf import pipeline
from ldrf.calibration.network import Network, read_network
from ldrf.recomposition.best import held_out_errors
from ldrf.reconstruction import all_units
from ldrf.reconstruction.all_units import full_width_layers, reconstruct_together
from ldrf.reconstruction.lockstep import Lockstep

CONFIG = ldrf.PruneConfig(steps=20, joint_steps=0, chunk=16, multiple=1)


@cache
def traced(kind: type[nn.Module], count: int) -> Network:
    """A network with so many images, read once for all that is done with it."""
    return read_network(make(kind), [images(count)], (), CONFIG)


def pruned(kind: type[nn.Module], count: int, **changes: Any) -> ldrf.PruneResult:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ldrf.run.read_network", lambda *_: traced(kind, count))
        return ldrf.prune(traced(kind, count).model, [], speedup=1.5, config=replace(CONFIG, **changes))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Inverted, Bottleneck])
def test_the_outputs_come_nearer_on_held_out_images(kind: type[nn.Module]):
    # As they are: blended, these images of noise are unlike those that judge.
    alone, joint = pruned(kind, 96), pruned(kind, 96, joint_steps=100, joint_rate=0.01, augment=False)
    assert alone.widths == joint.widths
    assert joint.held_out is not None and alone.held_out is not None
    assert joint.held_out.unit_by_unit == alone.held_out.unit_by_unit == alone.held_out.reconstructed
    assert joint.held_out.reconstructed < alone.held_out.reconstructed
    assert f"({alone.held_out.reconstructed:.4f} unit by unit, " in str(joint) and "unit by unit" not in str(alone)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Inverted, Residual])
def test_images_changed_by_chance_keep_it_from_fitting_the_few_that_were_given(kind: type[nn.Module]):
    model, fresh = make(kind), images(200, seed=9)
    plain, changed = (pruned(kind, 32, joint_steps=100, augment=on).model for on in (False, True))
    with torch.no_grad():
        errors = [float((slim(fresh) - model(fresh)).square().mean()) for slim in (plain, changed)]
    assert errors[1] < 0.9 * errors[0]
    for steps, on in (
        (all_units.MANY, False),
        (all_units.MANY + 1, True),
    ):  # passes over the chunk that is not held out
        by_itself, asked = (pruned(kind, 32, joint_steps=steps, augment=a).model.state_dict() for a in (None, on))
        assert all(torch.equal(by_itself[name], asked[name]) for name in asked)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Residual, VitBlock, Heads, Gated, UNet])
def test_other_networks_lose_nothing(kind: type[nn.Module]):
    """Nothing by which they are worse than unit by unit, which is what they are without (the first test)."""
    joint = pruned(kind, 48, joint_steps=40)
    assert joint.held_out is not None
    assert joint.held_out.reconstructed <= joint.held_out.unit_by_unit


@pytest.mark.slow
def test_by_default_there_are_ten_times_the_steps_of_a_unit_and_0_is_the_papers_algorithm():
    states = [pruned(Inverted, 64, steps=5, joint_steps=steps).model.state_dict() for steps in (None, 50, 0)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert any(not torch.equal(states[0][name], states[2][name]) for name in states[0])


def test_what_is_ignored_and_what_reads_no_cut_unit_stays():
    model, x = make(Residual), images(64)
    slim = ldrf.prune(model, x, speedup=1.2, ignore=("block1",), config=replace(CONFIG, joint_steps=20)).model
    before, after = model.state_dict(), slim.state_dict()
    protected = [name for name in before if name.startswith(("stem", "block1."))]
    assert protected and all(torch.equal(before[name], after[name]) for name in protected)


@pytest.mark.slow
def test_images_in_pieces_give_the_same_weights():
    network, walk = half_cut(Residual)
    config = replace(CONFIG, joint_steps=8, precision="float32")
    whole = reconstruct_together(network, walk, config)
    pieces = reconstruct_together(network, walk, replace(config, memory=1))
    assert whole is not None and pieces is not None
    for node in walk.changed:
        assert torch.allclose(whole.layers[node][0], pieces.layers[node][0], rtol=1e-3, atol=1e-4)


def test_steps_are_rounded_and_the_weights_they_leave_are_for_float32(monkeypatch):
    network, walk = half_cut(Residual)
    moved = {}
    for fast in (True, False):
        monkeypatch.setattr("ldrf.runtime.device.has_bfloat16", lambda _device, fast=fast: fast)
        moved[fast] = reconstruct_together(network, walk, replace(CONFIG, joint_steps=8))
        assert moved[fast] is not None and moved[fast].precision == "float32"
    exact = reconstruct_together(network, walk, replace(CONFIG, joint_steps=8, precision="float32"))
    assert exact is not None
    for node in walk.changed:
        assert torch.equal(moved[False].layers[node][0], exact.layers[node][0])
        assert not torch.equal(moved[True].layers[node][0], exact.layers[node][0])
        assert torch.allclose(moved[True].layers[node][0], exact.layers[node][0], rtol=0.05, atol=0.02)


@pytest.mark.slow
def test_what_held_out_images_lose_by_is_not_kept():
    alone = pruned(Inverted, 48)
    spoilt = pruned(Inverted, 48, joint_steps=5, joint_rate=10.0)
    assert spoilt.held_out == alone.held_out
    assert all(torch.equal(a, b) for a, b in zip(spoilt.model.parameters(), alone.model.parameters(), strict=True))


def test_a_moved_network_is_nearer_than_the_cut_one():
    network, walk = half_cut(Residual)
    moved = reconstruct_together(network, walk, replace(CONFIG, joint_steps=40))
    assert moved is not None
    cut, joint = held_out_errors(network, (walk.slim, moved))
    assert joint < 0.9 * cut
    assert all(moved.layers[node] is network.dense.layers[node] for node in set(moved.layers) - walk.changed)


def test_nothing_moves_without_descent():
    network, walk = half_cut(Residual)
    for config in (CONFIG, replace(CONFIG, joint_steps=5, solver="closed-form")):
        assert reconstruct_together(network, walk, config) is None
    walk.slim = network.dense
    assert reconstruct_together(network, walk, replace(CONFIG, joint_steps=5)) is None


@pytest.mark.parametrize("kind", [Chain, Branches])
def test_networks_with_no_goals_but_their_outputs_stay_as_they_are(kind: type[nn.Module]):
    network, walk = half_cut(kind)
    assert not full_width_layers(walk), "no layer was solved before it was cut"
    assert reconstruct_together(network, walk, replace(CONFIG, joint_steps=5)) is None


@pytest.mark.slow
def test_the_full_width_layers_of_a_chain_are_those_solved_before_they_were_cut(monkeypatch: pytest.MonkeyPatch):
    calls: list[Any] = []

    def spy(*args: Any) -> Any:
        calls.append((args, reconstruct_together(*args)))
        return calls[-1][1]

    monkeypatch.setattr(pipeline, "reconstruct_together", spy)
    result = pruned(Chain, 96, joint_steps=60)
    (_, walk, *_), moved = calls[0]
    full = {layer: walk.full_width[layer.node][0] for layer in full_width_layers(walk)}
    assert full and all(len(weight) == layer.outputs for layer, weight in full.items())
    for layer, weight in full.items():
        assert weight.shape[1] == walk.slim.layers[layer.node][0].shape[1], "they read the slim neurons"
    assert moved is not None
    assert {n: w.shape for n, (w, _) in moved.layers.items()} == {n: w.shape for n, (w, _) in walk.slim.layers.items()}
    assert result.held_out is not None and result.held_out.reconstructed < result.held_out.unit_by_unit


@pytest.mark.slow
def test_a_layer_of_a_chain_that_keeps_its_width_is_compared_as_it_was_solved(monkeypatch: pytest.MonkeyPatch):
    """Its neurons are others than the dense ones after its own unit was solved: to compare these leads astray."""
    walks: list[Lockstep] = []
    monkeypatch.setattr(pipeline, "reconstruct_together", lambda _network, walk, *_: walks.append(walk))
    x, config = images(96), replace(CONFIG, joint_steps=10)
    dense = make(Chain)
    first, second = (unit for unit in read_network(dense, [x], (), config).units)
    ldrf.prune(dense, [x], widths={first.name: first.width // 2, second.name: second.width}, config=config)
    (walk,) = walks
    assert [layer.node for layer in full_width_layers(walk)] == [second.producer.node]
    assert len(walk.slim.layers[second.producer.node][0]) == second.width


def test_a_number_of_steps_below_0_is_refused():
    with pytest.raises(ldrf.LdrfError, match="'joint_steps' must lie from 0"):
        ldrf.PruneConfig(joint_steps=-1)
