"""All units at once, after the last: Eqn. 6 summed over every place where dense and slim network still meet.

Unit by unit, each is solved for the error that the ones before it left, but none of them for what comes behind. Here
the layers that were solved move together, towards the dense values of the network's outputs, of every sum or map that
is as wide as before, and of what each layer that was cut gave at its full width.
"""

import math
from collections.abc import Collection, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from ldrf.algebra.descent import Scaled, descend
from ldrf.algebra.muon import Muon
from ldrf.calibration.augmentation import augmented
from ldrf.calibration.network import Network
from ldrf.config import PruneConfig, byte_count
from ldrf.inputs import Inputs
from ldrf.reconstruction.lockstep import Lockstep
from ldrf.reconstruction.problem import BEHIND, activated, apply_affine, source
from ldrf.runtime.processes import no_loss, sum_over, summed_gradients
from ldrf.runtime.randomness import same_chance
from ldrf.tracing.interpreter import Weights, run
from ldrf.tracing.lean_run import Values, input_values, run_lean
from ldrf.tracing.trace import Layer, Trace
from ldrf.units.grouping import activation_behind

SHARE = 8  # steps of all units together, for each of a unit by itself: one of the former is worth far more
RATE = 0.01  # top share of its size by which a tensor moves a step
MANY = 16  # passes over the images after which steps fit what is particular to them, so that they had better change
SIDE = "side of "  # before a layer's node: the same layer at full width
ASIDE = 16.0  # how much heavier such a layer counts than the outputs in a plain chain, which soon knows these by heart
COPIES = 2  # times that an activation is there on the way back: itself, and its slope


def reconstruct_together(network: Network, walk: Lockstep, config: PruneConfig) -> Weights | None:
    """The slim weights of ``walk`` with the layers that were solved moved together; None where there is nothing to do.

    Outputs alone would lead a network astray, and a plain chain has no sum or map that is as wide as before. But each
    of its layers was solved at full width, as a reader, before it was cut itself: these readers go along as goals.
    """
    steps = SHARE * config.steps if config.joint_steps is None else config.joint_steps
    if not steps or not walk.changed or config.solver not in ("joint", "l1-mask"):
        return None
    sides = side_readers(walk)
    goals = goal_weights(network, meeting_points(network, walk.slim), sides)
    if not goals.keys() - set(network.trace.outputs):
        return None
    return _descended(network, walk, sides, goals, steps, config)


def side_readers(walk: Lockstep) -> list[Layer]:
    """Layers that lost outputs after they were solved as readers of cut units; ``walk.whole`` has what they were.

    One that lost inputs after its outputs is none: what it was does not read the slim neurons.
    """
    shapes = {node: weight.shape[1:] for node, (weight, _) in walk.whole.items()}
    lost = [layer for layer in walk.trace.layers if layer.node in shapes and layer.groups == 1]
    return [layer for layer in lost if shapes[layer.node] == walk.slim.layers[layer.node][0].shape[1:]]


def goal_weights(network: Network, points: Collection[str], sides: Collection[Layer]) -> dict[str, float]:
    """What a squared distance counts at each goal: one over its spread, and more at full-width layers of a plain chain.

    Where there are residual sums, these lead the way. A layer at full width is compared before the activation that
    follows it and, for the greater part, behind it.
    """
    shares = dict.fromkeys(points, 1.0)
    heavier = 1.0 if any(c.other for unit in network.units for c in unit.consumers) else ASIDE
    for layer in sides:
        behind = activation_behind(network.trace, layer.result)
        parts = {layer.result: 1 - BEHIND, behind: BEHIND} if behind else {layer.result: 1.0}
        shares |= {name: heavier * share for name, share in parts.items()}
    return {name: shares[name] / spread for name, spread in goal_spreads(network, shares).items()}


def _descended(
    network: Network, walk: Lockstep, sides: list[Layer], goals: dict[str, float], steps: int, config: PruneConfig
) -> Weights:
    calibration, trace = network.calibration, network.trace
    start = walk.slim.with_layers({SIDE + layer.node: walk.whole[layer.node] for layer in sides})
    layers = {la.node: la for la in trace.layers if la.node in walk.changed} | {SIDE + la.node: la for la in sides}
    weights = {node: Scaled(start.layers[node][0]) for node in layers}
    biases = {n: Scaled(b) for n, la in layers.items() if la.has_bias and (b := start.layers[n][1]) is not None}
    every = [*weights.values(), *biases.values()]
    changing = steps > MANY * len(calibration.fitting) if config.augment is None else config.augment
    rows, dense = _rows_at_once(network, sides, config), _DenseValues(network, goals, config, fixed=not changing)
    generator = torch.Generator().manual_seed(config.seed)
    aside = {name for layer in sides for name in (layer.result, activation_behind(trace, layer.result))}
    wanted = (goals.keys() - aside) | {source(layer, trace) for layer in sides}

    def with_tensors(tensors: tuple[Tensor, ...]) -> Weights:
        found = dict(zip(weights, tensors, strict=False))
        constants = dict(zip(biases, tensors[len(weights) :], strict=True))
        return start.with_layers({n: (w, constants.get(n, start.layers[n][1])) for n, w in found.items()})

    def losses(chunk: int) -> Iterator[Tensor]:
        whole = calibration.chunks[chunk]
        if changing:  # also where this process has no rows of it: chance goes on alike in all of them
            whole = augmented(whole, generator, calibration.starts[chunk], calibration.sizes[chunk], blended=False)
        pieces = -(-calibration.sizes[chunk] // rows)
        for piece in range(pieces):
            tensors = summed_gradients(*(tensor() for tensor in every))
            part = whole.map(lambda t, piece=piece: t[piece::pieces])
            if not part.rows:
                yield no_loss(tensors)
                continue
            theirs, now = dense(chunk, piece, part), with_tensors(tensors)
            mine = values_at(trace, now, part, wanted, chunk)
            mine |= {name: value for layer in sides for name, value in _given_aside(layer, trace, now, mine)}
            gaps = [weight * F.mse_loss(mine[n], theirs[n], reduction="sum") for n, weight in goals.items()]
            yield torch.stack(gaps).sum() / calibration.sizes[chunk]

    descend(every, losses, calibration.fitting, steps, RATE, config.seed, Muon, "together")
    with torch.no_grad():
        moved = with_tensors(tuple(tensor().detach().contiguous() for tensor in every))
        return walk.slim.with_layers({node: moved.layers[node] for node in walk.changed})


def _given_aside(layer: Layer, trace: Trace, now: Weights, values: Values) -> Iterator[tuple[str, Tensor]]:
    """What a layer of full width makes of the slim values it reads, and what the activation behind it makes of that."""
    given = apply_affine(layer, values[source(layer, trace)], *now.affine(SIDE + layer.node))
    yield layer.result, given
    behind = activation_behind(trace, layer.result)
    if behind:
        yield behind, activated(trace, behind, given)


class _DenseValues:
    """Values of the dense network at the goals, kept from pass to pass if images are fixed and all fits in memory."""

    def __init__(self, network: Network, goals: Collection[str], config: PruneConfig, fixed: bool) -> None:
        self.network, self.goals, self.known = network, goals, {}
        one = self._run(network.example.map(lambda t: t[:1]), 0)
        size = sum(value.numel() * value.element_size() for value in one.values())
        rows = sum(network.calibration.chunks[chunk].rows for chunk in network.calibration.fitting)
        self.fit = fixed and 2 * size * rows <= network.calibration.room(byte_count(config.memory))

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
def meeting_points(network: Network, slim: Weights) -> list[str]:
    """Values of one shape in both networks that differ: what the units' readers give, and the outputs."""
    trace, few = network.trace, network.example.map(lambda t: t[:2])
    mine, theirs = (run(trace, w, trace.nodes, input_values(trace, few)) for w in (slim, network.dense))
    goals = [c.activation or c.goal for unit in network.units for c in unit.consumers]
    return [n for n in dict.fromkeys([*goals, *trace.outputs]) if _meet(mine.get(n), theirs.get(n))]


@torch.no_grad()
def goal_spreads(network: Network, goals: Collection[str]) -> dict[str, float]:
    """The spread of each goal per image in the dense network; those that do not vary are left out."""
    trace, calibration = network.trace, network.calibration
    first = calibration.fitting[0]
    own = calibration.own([first])
    values = values_at(trace, network.dense, calibration.chunks[first], goals, first) if own else {}
    sums = {n: _sums(values.get(n)) for n in goals}
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


def _rows_at_once(network: Network, sides: list[Layer], config: PruneConfig) -> int:
    """Images whose activations fit the memory on the way back."""
    few = network.example.map(lambda t: t[:1])
    with torch.no_grad():
        values = run(network.trace, network.dense, network.trace.nodes, input_values(network.trace, few))
    beside = [values[layer.result] for layer in sides]
    size = sum(v.numel() * v.element_size() for v in (*values.values(), *beside) if isinstance(v, Tensor))
    return max(1, network.calibration.room(byte_count(config.memory)) // (COPIES * max(size, 1)))
