"""Multiply-accumulates per example: ``speedup`` is dense MACs / slim MACs."""

import math

from ldrf.calibration.network import Network, Whole
from ldrf.planning.cost_model import CostModel, Term, cost_model, products, touched_layers
from ldrf.planning.objective import Objective
from ldrf.tracing.trace import Trace
from ldrf.units.unit import Unit


def mac_model(trace: Trace, units: tuple[Unit, ...], total: float, whole: Whole | None = None) -> CostModel:
    """MACs per example: every layer a unit touches as a product of widths, all else fixed.

    Where the network is parts of a ``whole``, ``total`` is what that costs.
    """

    def often(name: str) -> float:
        return 1 if whole is None else whole.often(name)

    terms: list[Term] = []
    for layer, outputs, inputs in touched_layers(trace, units):
        terms += products(often(layer.name) * layer.calls * math.prod(layer.kernel), outputs, inputs)
    terms += [Term(often(unit.name) * unit.work / unit.width, (unit.name,)) for unit in units if unit.work]
    return cost_model(terms, units, total)


def network_macs(network: Network) -> CostModel:
    if network.whole is not None:
        return mac_model(network.trace, network.units, network.whole.macs, network.whole)
    return mac_model(network.trace, network.units, network.macs)


ENTRY = Objective("speedup", network_macs)
