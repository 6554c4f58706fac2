"""All units at once, after the last: Eqn. 6 summed over every place where dense and slim network still meet.

Unit by unit, each is solved for the error that the ones before it left, but none of them for what comes behind. Here
the layers that were solved move together, towards the dense values of the network's outputs and of every sum or map
that is as wide as before.
"""

import math
from collections.abc import Collection, Iterator

import torch
from torch import Tensor

from ldrf.chance import same_chance
from ldrf.config import PruneConfig, byte_count
from ldrf.descent import Scaled, descend
from ldrf.forward import Values, input_values, run_lean
from ldrf.inputs import Inputs
from ldrf.interpreter import Weights, run
from ldrf.muon import Muon
from ldrf.network import Network
from ldrf.processes import no_loss, sum_over, summed_gradients
from ldrf.tracing import Trace

RATE = 0.01  # top share of its size by which a tensor moves a step
COPIES = 2  # times that an activation is there on the way back: itself, and its slope


def reconstruct_together(network: Network, slim: Weights, changed: set[str], config: PruneConfig) -> Weights | None:
    """The slim weights with the ``changed`` layers moved together; None where there is nothing to do.

    In a plain chain, where the networks meet at their outputs alone, unit by unit does no worse, so it is left at that.
    """
    steps = 2 * config.steps if config.joint_steps is None else config.joint_steps
    if not steps or not changed or config.solver not in ("joint", "l1-mask"):
        return None
    spreads = goal_spreads(network, slim)
    within = spreads.keys() - set(network.trace.outputs)
    return _descended(network, slim, changed, spreads, steps, config) if within else None


def _descended(
    network: Network, slim: Weights, changed: set[str], spreads: dict[str, float], steps: int, config: PruneConfig
) -> Weights:
    calibration, nodes = network.calibration, [la for la in network.trace.layers if la.node in changed]
    weights = {layer.node: Scaled(slim.layers[layer.node][0]) for layer in nodes}
    biases = {la.node: Scaled(b) for la in nodes if la.has_bias and (b := slim.layers[la.node][1]) is not None}
    every = [*weights.values(), *biases.values()]
    rows, dense = _rows_at_once(network, config), _DenseValues(network, spreads, config)

    def with_tensors(tensors: tuple[Tensor, ...]) -> Weights:
        found = dict(zip(weights, tensors, strict=False))
        constants = dict(zip(biases, tensors[len(weights) :], strict=True))
        return slim.with_layers({n: (w, constants.get(n, slim.layers[n][1])) for n, w in found.items()})

    def losses(chunk: int) -> Iterator[Tensor]:
        whole = calibration.chunks[chunk]
        pieces = -(-calibration.sizes[chunk] // rows)
        for piece in range(pieces):
            tensors = summed_gradients(*(tensor() for tensor in every))
            part = whole.map(lambda t, piece=piece: t[piece::pieces])
            if not part.rows:
                yield no_loss(tensors)
                continue
            goals = dense(chunk, piece, part)
            found = values_at(network.trace, with_tensors(tensors), part, spreads, chunk)
            gaps = [(found[name] - goals[name]).square().sum() / spread for name, spread in spreads.items()]
            yield torch.stack(gaps).sum() / calibration.sizes[chunk]

    descend(every, losses, calibration.fitting, steps, RATE, config.seed, Muon, "together")
    with torch.no_grad():
        return with_tensors(tuple(tensor().detach().contiguous() for tensor in every))


class _DenseValues:
    """Values of the dense network at the goals, kept from pass to pass where those of all images fit the memory."""

    def __init__(self, network: Network, goals: dict[str, float], config: PruneConfig) -> None:
        self.network, self.goals, self.known = network, goals, {}
        one = self._run(network.example.map(lambda t: t[:1]), 0)
        size = sum(value.numel() * value.element_size() for value in one.values())
        rows = sum(network.calibration.chunks[chunk].rows for chunk in network.calibration.fitting)
        self.fit = 2 * size * rows <= network.calibration.room(byte_count(config.memory))

    def __call__(self, chunk: int, piece: int, inputs: Inputs) -> Values:
        found = self.known.get((chunk, piece)) or self._run(inputs, chunk)
        if self.fit:
            self.known[chunk, piece] = found
        return found

    @torch.no_grad()
    def _run(self, inputs: Inputs, chance: int) -> Values:
        return values_at(self.network.trace, self.network.dense, inputs, self.goals, chance)


def values_at(trace: Trace, weights: Weights, inputs: Inputs, names: Collection[str], chance: int) -> Values:
    """The named values of a network, all others let go of as soon as nobody reads them."""
    with same_chance(chance):
        values = run_lean(trace, weights, 0, len(trace.nodes), input_values(trace, inputs), names)
    return {name: values[name] for name in names}


@torch.no_grad()
def goal_spreads(network: Network, slim: Weights) -> dict[str, float]:
    """Where the networks are compared: values of one shape in both that differ, and the spread of each per image."""
    trace, calibration = network.trace, network.calibration
    few = network.example.map(lambda t: t[:2])
    mine, theirs = (run(trace, w, trace.nodes, input_values(trace, few)) for w in (slim, network.dense))
    goals = [c.activation or c.goal for unit in network.units for c in unit.consumers]
    met = {n: 0.0 for n in dict.fromkeys([*goals, *trace.outputs]) if _meet(mine.get(n), theirs.get(n))}
    first = calibration.fitting[0]
    values = values_at(trace, network.dense, calibration.chunks[first], met, first) if calibration.own([first]) else {}
    sums = {n: _sums(values.get(n)) for n in met}
    found = {n: sum_over(s).tolist() for n, s in sums.items()}
    spreads = {
        n: (squares - total * total / max(count, 1)) / calibration.sizes[first]
        for n, (count, total, squares) in found.items()
    }
    return {n: spread for n, spread in spreads.items() if math.isfinite(spread) and spread > 0}


def _meet(mine: object, theirs: object) -> bool:
    both = isinstance(mine, Tensor) and isinstance(theirs, Tensor) and mine.shape == theirs.shape
    return both and theirs.is_floating_point() and not torch.equal(mine, theirs)  # pyright: ignore


def _sums(value: Tensor | None) -> Tensor:
    """Number of values, their sum and the sum of their squares."""
    if value is None:
        return torch.zeros(3, dtype=torch.float64)
    count = torch.tensor(value.numel(), dtype=torch.float64)
    return torch.stack([count, value.double().sum(), value.double().square().sum()])


def _rows_at_once(network: Network, config: PruneConfig) -> int:
    """Images whose activations fit the memory on the way back."""
    few = network.example.map(lambda t: t[:1])
    with torch.no_grad():
        values = run(network.trace, network.dense, network.trace.nodes, input_values(network.trace, few))
    size = sum(v.numel() * v.element_size() for v in values.values() if isinstance(v, Tensor))
    return max(1, network.calibration.room(byte_count(config.memory)) // (COPIES * max(size, 1)))
