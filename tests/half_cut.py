"""A network with every unit cut in half, for tests of what follows stage 2."""

import torch
from networks import images, make
from torch import nn

import ldrf
from ldrf.calibration.network import Network, read_network
from ldrf.calibration.store import ActivationStore
from ldrf.reconstruction.lockstep import Lockstep
from ldrf.units.indices import cut_weights


def half_cut(kind: type[nn.Module]) -> tuple[Network, Lockstep]:
    """A network and its slim weights with every unit cut in half, the neurons that stay as they were."""
    network = read_network(make(kind), [images(64)], (), ldrf.PruneConfig(chunk=16))
    walk = Lockstep(network.trace, network.dense, network.calibration, ActivationStore(1 << 30))
    kept = {unit.name: torch.arange(unit.width // 2) for unit in network.units}
    walk.commit(cut_weights(network.trace, network.units, network.dense, kept))
    return network, walk
