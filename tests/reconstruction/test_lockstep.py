"""Dense and slim network side by side: each frontier has the values of its own network, and no more than is read."""

import pytest
import torch
from networks import Chain, Gated, Residual, UNet, VitBlock, images, make
from torch import Tensor, fx, nn

from ldrf.calibration.network import Network, read_network
from ldrf.calibration.store import ActivationStore, Owner
from ldrf.config import PruneConfig
from ldrf.reconstruction.lockstep import Lockstep, path_between, side_inputs
from ldrf.tracing.interpreter import Weights, run
from ldrf.tracing.lean_run import Values, input_values
from ldrf.tracing.operations import read_by
from ldrf.units.indices import cut_weights

KINDS = [Chain, Residual, Gated, UNet, VitBlock]


def read(kind: type[nn.Module]) -> Network:
    return read_network(make(kind), [images(16)], (), PruneConfig(chunk=8))


def halved(network: Network) -> Weights:
    """Weights of the same shapes that differ everywhere."""
    layers = {n: (w / 2, b if b is None else b / 2) for n, (w, b) in network.dense.layers.items()}
    return network.dense.with_layers(layers)


@torch.no_grad()
def whole_run(network: Network, weights: Weights, chunk: int) -> Values:
    values = input_values(network.trace, network.calibration.chunks[chunk])
    return run(network.trace, weights, network.trace.nodes, values)


@pytest.mark.parametrize("budget", [0, 2**30])
@pytest.mark.parametrize("kind", KINDS)
def test_a_frontier_has_the_values_of_its_network_that_are_still_read(kind: type[nn.Module], budget: int):
    network = read(kind)
    nodes, other = network.trace.nodes, halved(network)
    with ActivationStore(budget) as store:
        walk = Lockstep(network.trace, network.dense, network.calibration, store)
        walk.commit(other)
        for position in range(0, len(nodes), 3):
            walk.advance(position)
            later = {name for node in nodes[position:] for name in read_by(node)}
            networks: dict[Owner, Weights] = {"dense": network.dense, "slim": other}
            for net, weights in networks.items():
                wanted = whole_run(network, weights, 1)
                values = walk.frontier(net, 1)
                assert values and set(values) <= later | set(network.trace.outputs)
                for name, value in values.items():
                    assert not isinstance(value, Tensor) or torch.equal(value, wanted[name]), name


def test_before_the_first_change_the_slim_network_is_the_dense_one():
    network = read(Residual)
    with ActivationStore(2**30) as store:
        walk = Lockstep(network.trace, network.dense, network.calibration, store)
        walk.advance(network.units[0].start)
        alone = len(list(store))
        assert not walk.diverged and not walk.changed
        assert walk.frontier("slim", 0).keys() == walk.frontier("dense", 0).keys()
        walk.commit(halved(network))
        assert walk.diverged and len(list(store)) == 2 * alone
        assert walk.changed == set(network.dense.layers)


def test_a_segment_goes_from_the_frontier_to_its_end():
    network = read(Residual)
    end = network.units[1].end
    with ActivationStore(2**30) as store:
        walk = Lockstep(network.trace, network.dense, network.calibration, store)
        walk.commit(halved(network))
        walk.advance(network.units[1].start)
        with torch.no_grad():
            dense, slim = walk.segment("dense", 0, end), walk.segment("slim", 0, end)
            given = walk.segment("slim", 0, end, network.dense.with_layers(halved(network).layers))
    name = network.trace.nodes[end].name
    assert torch.equal(dense[name], whole_run(network, network.dense, 0)[name])
    assert torch.equal(slim[name], whole_run(network, halved(network), 0)[name])
    assert torch.equal(given[name], slim[name])
    assert network.trace.nodes[end + 1].name not in dense


@pytest.mark.parametrize("budget", [0, 2**30])
@pytest.mark.parametrize("kind", KINDS)
def test_dense_values_that_were_computed_ahead_are_not_computed_again(
    kind: type[nn.Module], budget: int, monkeypatch: pytest.MonkeyPatch
):
    network = read(kind)
    wanted, unit = whole_run(network, network.dense, 1), network.units[0]
    goal = unit.consumers[-1].goal
    ran: list[str] = []

    def noted(trace: object, weights: Weights, nodes: list[fx.Node], values: Values) -> Values:
        ran.extend(node.name for node in nodes if weights is network.dense)
        return run(network.trace, weights, nodes, values)

    monkeypatch.setattr("ldrf.reconstruction.lockstep.run", noted)
    with ActivationStore(budget) as store:
        walk = Lockstep(network.trace, network.dense, network.calibration, store)
        walk.commit(halved(network))
        walk.advance(unit.start)
        walk.keep_ahead(1, goal, wanted[goal])
        before = len(ran)
        walk.advance(network.trace.index(goal) + 1)
        values = walk.frontier("dense", 1)
        assert not store.keys("dense", 1, "ahead")
    assert goal in ran[before:], "of the other chunk"
    assert ran[before:].count(goal) == (1 if budget else 2)
    assert all(not isinstance(v, Tensor) or torch.equal(v, wanted[name]) for name, v in values.items())


def test_a_layer_that_loses_outputs_after_it_was_solved_is_remembered_at_full_width():
    network = read(Chain)
    first, second = network.units
    solved = {second.producer.node: (network.dense.layers[second.producer.node][0] + 1, None)}
    with ActivationStore(2**30) as store:
        walk = Lockstep(network.trace, network.dense, network.calibration, store)
        walk.commit(network.dense.with_layers(solved))
        assert walk.full_width == {}
        half = cut_weights(
            network.trace,
            network.units,
            walk.slim,
            {first.name: torch.arange(first.width)} | {second.name: torch.arange(3)},
        )
        walk.commit(half)
    assert set(walk.full_width) == {second.producer.node}
    assert torch.equal(walk.full_width[second.producer.node][0], solved[second.producer.node][0])


def test_a_layer_whose_outputs_are_solved_anew_is_remembered_even_if_it_keeps_them_all():
    network = read(Chain)
    node = network.units[1].producer.node
    once, twice = (
        {node: (network.dense.layers[node][0] * (1 + number), network.dense.layers[node][1])} for number in (1, 2)
    )
    with ActivationStore(2**30) as store:
        walk = Lockstep(network.trace, network.dense, network.calibration, store)
        walk.commit(network.dense.with_layers(once), (node,))
        assert walk.full_width == {}, "nothing had been solved before"
        walk.commit(walk.slim.with_layers(twice))
        assert walk.full_width == {}, "solved as a consumer again"
        walk.commit(walk.slim.with_layers(once), (node,))
    assert walk.full_width == {node: twice[node]}


@pytest.mark.parametrize("kind", KINDS)
def test_a_path_leads_from_the_neurons_to_the_inputs_of_all_consumers(kind: type[nn.Module]):
    network = read(kind)
    values = whole_run(network, network.dense, 0)
    for unit in network.units:
        path = path_between(network.trace, unit)
        side = side_inputs(path, unit, network.trace)
        made = {unit.producer.node, unit.producer.result}
        start = {name: values[name] for name in side | made}
        with torch.no_grad():
            again = run(network.trace, network.dense, path, dict(start))
        for consumer in unit.consumers:
            name = network.trace.node(consumer.layer.node).all_input_nodes[0].name
            assert torch.equal(again[name], values[name])
