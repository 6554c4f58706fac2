"""What a unit's problem collects from the slim network is what the whole slim network computes."""

import pytest
import torch
from networks import Chain, Gated, Inverted, Residual, images, make
from torch import Tensor, nn

from ldrf.calibration.network import Network, read_network
from ldrf.calibration.store import ActivationStore, Key
from ldrf.config import PruneConfig
from ldrf.reconstruction.lockstep import Lockstep, path_between, side_inputs
from ldrf.reconstruction.problem import open_problem, source
from ldrf.tracing.interpreter import Weights


def other_weights(network: Network) -> Weights:
    """Weights of another network of the same shape: halved, so that slim values differ from dense ones everywhere."""
    halved = {n: (w / 2, b if b is None else b / 2) for n, (w, b) in network.dense.layers.items()}
    return network.dense.with_layers(halved)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Chain, Residual, Inverted, Gated])
@torch.no_grad()
def test_slim_values_are_those_of_the_whole_slim_network(kind: type[nn.Module]):
    network = read_network(make(kind), [images(16)], (), PruneConfig(chunk=8))
    ones = {c.goal: torch.ones(c.layer.outputs) for u in network.units for c in u.consumers}
    with ActivationStore(2**30) as store:
        walk = Lockstep(network.trace, network.dense, network.calibration, store)
        walk.commit(other_weights(network))
        for unit in network.units:
            walk.advance(unit.start)
            slim = walk.segment("slim", 0, len(network.trace.nodes) - 1)
            dense = walk.segment("dense", 0, len(network.trace.nodes) - 1)
            side = side_inputs(path_between(network.trace, unit), unit, network.trace)
            with open_problem(walk, unit, ones) as problem:
                inputs = {p.node: slim[source(p, network.trace)] for p in problem.partners}
                wanted: dict[Key, Tensor] = {Key("unit", 0, "input"): slim[source(unit.producer, network.trace)]}
                wanted |= {Key("unit", 0, "partner input", node): x for node, x in inputs.items()}
                wanted |= {Key("unit", 0, "side", n): slim[n] for n in side if isinstance(slim[n], Tensor)}
                for i, consumer in enumerate(unit.consumers):
                    wanted[Key("unit", 0, "goal", str(i))] = dense[consumer.goal]
                    if consumer.other:
                        wanted[Key("unit", 0, "shortcut", str(i))] = slim[consumer.other]
                assert {k for k in store if (k.owner, k.chunk) == ("unit", 0)} == set(wanted)
                assert all(torch.equal(store.get(key), value) for key, value in wanted.items())
            assert not any(key.owner == "unit" for key in store), "the data goes when the unit is done"
