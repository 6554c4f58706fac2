"""The goals of all units together: values of one shape in both networks, each counted by its spread."""

from dataclasses import replace

import pytest
import torch
from half_cut import half_cut
from networks import Bottleneck, Chain, Residual

import ldrf
from ldrf.reconstruction.goals import (
    OUTPUT_WEIGHT,
    DenseValues,
    goal_dims,
    goal_spreads,
    goal_weights,
    meeting_points,
    values_at,
)
from ldrf.reconstruction.problem import BEHIND


def test_goals_are_the_values_that_are_as_wide_as_before():
    network, walk = half_cut(Residual)
    spreads = goal_spreads(network, meeting_points(network, walk.slim))
    mine, theirs = (values_at(network.trace, w, network.example, spreads, 0) for w in (walk.slim, network.dense))
    assert len(spreads) == 3, "two blocks and the outputs"
    assert all(mine[name].shape == theirs[name].shape for name in spreads)
    first = network.calibration.fitting[0]
    whole = values_at(network.trace, network.dense, network.calibration.chunks[first], spreads, 0)
    for name, spread in spreads.items():
        wanted = float(whole[name].var(correction=0)) * whole[name][0].numel()
        assert spread == pytest.approx(wanted, rel=1e-4)
    chain, walk = half_cut(Chain)
    assert meeting_points(chain, walk.slim) == list(chain.trace.outputs)


def test_a_layer_at_full_width_is_compared_before_and_behind_its_activation():
    network, walk = half_cut(Chain)
    layer = next(layer for layer in network.trace.layers if layer.name == "conv2")
    (behind,) = network.trace.node(layer.result).users
    (output,) = network.trace.outputs
    weights = goal_weights(network, [output], [layer])
    spreads = goal_spreads(network, weights)
    counted = {name: weight * spreads[name] for name, weight in weights.items()}
    wanted = {output: OUTPUT_WEIGHT, layer.result: 1 - BEHIND, behind.name: BEHIND}
    assert counted == pytest.approx(wanted) and "relu" in behind.name
    assert goal_weights(network, meeting_points(network, walk.slim), []).keys() == {output}


@pytest.mark.slow
def test_beside_residual_sums_a_layer_at_full_width_counts_as_they_do():
    network, _ = half_cut(Bottleneck)
    layer = next(layer for layer in network.trace.layers if layer.name == "conv2")
    spreads = goal_spreads(network, weights := goal_weights(network, [], [layer]))
    assert sum(weight * spreads[name] for name, weight in weights.items()) == pytest.approx(1.0)


@pytest.mark.parametrize(("fixed", "memory"), [(True, 2**30), (False, 2**30), (True, 1)])
def test_dense_values_are_kept_only_where_images_are_fixed_and_memory_allows(fixed: bool, memory: int):
    network, _ = half_cut(Chain)
    names = list(network.trace.outputs)
    dense = DenseValues(network, names, replace(ldrf.PruneConfig(), memory=memory), fixed)
    chunk = network.calibration.fitting[0]
    inputs = network.calibration.chunks[chunk]
    first, again = dense(chunk, 0, inputs), dense(chunk, 0, inputs)
    assert (first is again) is (fixed and memory > 1)
    with torch.no_grad():
        torch.testing.assert_close(first.values[names[0]], inputs.call(network.model), rtol=1e-4, atol=1e-5)


def test_large_rows_come_with_a_factor_at_goals_inside_the_network_alone():
    network, _ = half_cut(Residual)
    inside = next(iter(goal_dims(network)))
    names, output = [inside, network.trace.outputs[0]], network.trace.outputs[0]
    chunk = network.calibration.fitting[0]
    large = network.calibration.chunks[chunk].map(lambda t: torch.cat([1e4 * t[:1], t[1:]]))
    goals = DenseValues(network, names, ldrf.PruneConfig(), fixed=False)(chunk, 0, large)
    factors = goals.factors[inside]
    assert factors is not None and goals.factors[output] is None
    assert float(factors[0].max()) < 1 and bool((factors[1:] == 1).any())
