"""Parameters of the model: ``params`` is dense parameters / slim parameters."""

import math

from ldrf.calibration.network import Network
from ldrf.channels.walk import layer_tensors
from ldrf.planning.cost_model import CostModel, Term, cost_model, products, touched_layers
from ldrf.planning.objective import Objective
from ldrf.tracing.counting import count_parameters
from ldrf.tracing.trace import Trace
from ldrf.units.unit import Unit


def parameter_model(trace: Trace, units: tuple[Unit, ...], total: float) -> CostModel:
    """Parameters: weights, biases and norms of every layer a unit touches."""
    terms: list[Term] = []
    for layer, outputs, inputs in {touched[0].weight: touched for touched in touched_layers(trace, units)}.values():
        terms += products(math.prod(layer.kernel), outputs, inputs)
        vectors = bool(layer.bias) + (bool(layer.norm.weight) + bool(layer.norm.bias) if layer.norm else 0)
        terms += [Term(vectors * count, (unit,)) for unit, count in outputs.per.items()]
    counted = {name for layer in trace.layers for name in layer_tensors(layer)}
    for unit in units:
        for piece in {piece.tensor: piece for piece in unit.slices}.values():
            if piece.tensor not in counted:  # a carrier such as PReLU or a norm on its own
                share = (piece.ids >= 0).sum() / len(piece.ids) / unit.width
                terms.append(Term(trace.parameters.get(piece.tensor, 0) * float(share), (unit.name,)))
    return cost_model(terms, units, total)


def network_parameters(network: Network) -> CostModel:
    total = network.whole.parameters if network.whole is not None else count_parameters(network.model)
    return parameter_model(network.trace, network.units, total)


ENTRY = Objective("params ratio", network_parameters)
