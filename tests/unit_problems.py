"""One unit's problem on a small network, for tests of what solves it."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from networks import images, make
from torch import nn

import ldrf
from ldrf.calibration.network import read_network
from ldrf.calibration.store import ActivationStore
from ldrf.reconstruction.lockstep import Lockstep
from ldrf.reconstruction.problem import Problem, narrowed, open_problem


@contextmanager
def unit_problem(kind: type[nn.Module] | nn.Module, name: str, width: int, rows: int = 64) -> Iterator[Problem]:
    """The problem of the named unit with its first ``width`` neurons, nothing else cut; all outputs count alike."""
    model = kind if isinstance(kind, nn.Module) else make(kind)
    network = read_network(model, [images(rows)], (), ldrf.PruneConfig(chunk=16))
    unit = next(unit for unit in network.units if unit.name == name)
    ones = {c.goal: torch.ones(c.layer.outputs) for c in unit.consumers}
    with ActivationStore(2**30) as store:
        walk = Lockstep(network.trace, network.dense, network.calibration, store)
        walk.advance(unit.start)
        with open_problem(walk, unit, ones) as problem:
            yield narrowed(problem, torch.arange(width))
