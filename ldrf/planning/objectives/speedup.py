"""Multiply-accumulates per example: ``speedup`` is dense MACs / slim MACs."""

import math

from ldrf.calibration.network import Network
from ldrf.planning.cost_model import CostModel, Term, cost_model, products, touched_layers
from ldrf.planning.objective import Objective
from ldrf.tracing.trace import Trace
from ldrf.units.unit import Unit


def mac_model(trace: Trace, units: tuple[Unit, ...], total: float) -> CostModel:
    """MACs per example: every layer a unit touches as a product of widths, all else fixed."""
    terms: list[Term] = []
    for layer, outputs, inputs in touched_layers(trace, units):
        terms += products(layer.calls * math.prod(layer.kernel), outputs, inputs)
    terms += [Term(unit.work / unit.width, (unit.name,)) for unit in units if unit.work]
    return cost_model(terms, units, total)


def network_macs(network: Network) -> CostModel:
    return mac_model(network.trace, network.units, network.macs)


ENTRY = Objective("speedup", network_macs)
