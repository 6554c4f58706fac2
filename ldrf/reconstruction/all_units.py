"""The layers of all units moved together, after the last: Eqn. 6 summed over every goal that the networks share.

Unit by unit, each one is solved for the error that the ones before it left, but not for its effect on later ones. Here
the layers that were solved move together towards the dense values of all goals (``goals.py``).
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ldrf.algebra.descent import Keeper, descend, filled, leaves, scaled
from ldrf.algebra.muon import Muon
from ldrf.algebra.squared_gap import squared_gap
from ldrf.calibration.augmentation import augmented
from ldrf.calibration.network import Network
from ldrf.config import PruneConfig
from ldrf.inputs import Inputs
from ldrf.reconstruction.goals import DenseValues, Goals, goal_weights, meeting_points, values_at
from ldrf.reconstruction.lockstep import Lockstep
from ldrf.reconstruction.problem import activated, apply_affine, source
from ldrf.reconstruction.unit_solver import find_solver
from ldrf.runtime.device import CPU, descent_precision, forward_precision
from ldrf.runtime.processes import agreed, count, no_loss, summed_gradients
from ldrf.tracing.interpreter import Weights, run
from ldrf.tracing.lean_run import Values, input_values
from ldrf.tracing.trace import Layer
from ldrf.units.grouping import activation_behind

MANY = 16  # passes over the images above which they are augmented, as the steps would overfit
COPIES = 2  # times that an activation is held in the backward pass: itself, and its gradient


def reconstruct_together(
    network: Network, walk: Lockstep, config: PruneConfig, keeper: Keeper | None = None
) -> Weights | None:
    """The slim weights of ``walk`` with the layers that were solved moved together; None where there is nothing to do.

    ``keeper`` keeps the standing of the descent, so that a killed run goes on from there.

    The outputs alone are too few goals, and in a plain chain no sum or map is as wide as before. But each layer of a
    chain was solved at its full width, as a consumer, before its own outputs were solved. That full-width layer is
    kept beside the slim network: it moves along, reads the slim neurons, and must reproduce the layer's dense outputs.
    """
    steps = config.steps_together
    if not steps or not walk.changed or not find_solver(config).together:
        return None
    full_width = full_width_layers(walk)
    goals = goal_weights(network, meeting_points(network, walk.slim), full_width)
    if not goals.keys() - set(network.trace.outputs):
        return None
    rounded = replace(network.dense, precision=descent_precision(network.dense.device, config.precision))
    return _Descent(replace(network, dense=rounded), walk, tuple(full_width), goals, config).run(steps, keeper)


def same_weights(weights: Weights | None) -> Weights | None:
    """The first process's weights for all of them, each on its own device."""
    if count() == 1 or weights is None:
        return weights
    return replace(agreed(weights.placed(CPU)), device=weights.device).placed(weights.device)


def full_width_layers(walk: Lockstep) -> list[Layer]:
    """Layers whose outputs were solved after they were solved as consumers; ``walk.full_width`` has them before that.

    A layer that lost inputs afterwards is left out: at full width it does not fit the slim neurons.
    """
    shapes = {node: weight.shape[1:] for node, (weight, _) in walk.full_width.items()}
    lost = [layer for layer in walk.trace.layers if layer.node in shapes and layer.groups == 1]
    return [layer for layer in lost if shapes[layer.node] == walk.slim.layers[layer.node][0].shape[1:]]


class _Tensors(NamedTuple):
    """What moves, by node: weights and biases of the slim layers, and of those at full width beside them."""

    weights: dict[str, Any]
    full_weights: dict[str, Any]
    biases: dict[str, Any]
    full_biases: dict[str, Any]


@dataclass(frozen=True)
class _Descent:
    """All units of a network on their way to the goals; ``goals`` says what a squared distance counts at each.

    Both networks run in the precision that the dense weights have here.
    """

    network: Network
    walk: Lockstep
    full_width: tuple[Layer, ...]
    goals: dict[str, float]
    config: PruneConfig

    def run(self, steps: int, keeper: Keeper | None) -> Weights:
        """The slim weights after so many steps."""
        calibration, config = self.network.calibration, self.config
        augments = steps > MANY * len(calibration.fitting) if config.augment is None else config.augment
        moving: _Tensors = scaled(self._start())
        dense = DenseValues(self.network, self.goals, config, fixed=not augments)
        generator = torch.Generator().manual_seed(config.seed)

        def losses(chunk: int) -> Iterator[Tensor]:
            whole, size = calibration.chunks[chunk].to(self.network.dense.device), calibration.sizes[chunk]
            if augments:  # also where this process has no images of it: randomness goes on alike in all of them
                whole = augmented(whole, generator, calibration.starts[chunk], size).inputs
            for piece, part in self._pieces(whole, size):
                tensors = summed_gradients(*(tensor() for tensor in leaves(moving)))
                if not part.rows:
                    yield no_loss(tensors)
                    continue
                yield self._loss(filled(moving, tensors), dense(chunk, piece, part), part, chunk)

        together = partial(descend, optimiser_of=Muon, bar="together", keeper=keeper, generator=generator)
        together(leaves(moving), losses, calibration.fitting, steps, config.rate_together, config.seed)
        with torch.no_grad():
            return self._slim(filled(moving, [tensor().detach().contiguous() for tensor in leaves(moving)]))

    def _pieces(self, whole: Inputs, size: int) -> Iterator[tuple[int, Inputs]]:
        """A chunk in so many parts that the activations of each fit the memory in the backward pass."""
        pieces = -(-size // self._images_at_once)
        for piece in range(pieces):
            yield piece, whole.map(lambda t, piece=piece: t[piece::pieces])

    def _loss(self, tensors: _Tensors, theirs: Goals, part: Inputs, chunk: int) -> Tensor:
        """The weighted squared gaps at all goals, per image of the chunk."""
        mine = self._values(tensors, part, chunk)
        gaps = [w * squared_gap(mine[n], theirs.values[n], theirs.factors[n]) for n, w in self.goals.items()]
        return torch.stack(gaps).sum() / self.network.calibration.sizes[chunk]

    def _start(self) -> _Tensors:
        """The tensors that move, where they stand: of all layers that were solved, and of those at full width."""
        changed = self.walk.changed
        layers = [layer for layer in self.network.trace.layers if layer.node in changed]
        device = self.walk.slim.device
        slim = self.walk.slim.placed(device).layers
        full = {n: (w.to(device), b if b is None else b.to(device)) for n, (w, b) in self.walk.full_width.items()}
        return _Tensors(
            {la.node: slim[la.node][0] for la in layers},
            {la.node: full[la.node][0] for la in self.full_width},
            {la.node: b for la in layers if la.has_bias and (b := slim[la.node][1]) is not None},
            {la.node: b for la in self.full_width if la.has_bias and (b := full[la.node][1]) is not None},
        )

    def _slim(self, tensors: _Tensors) -> Weights:
        """The slim weights with these tensors."""
        slim = self.walk.slim
        return slim.with_layers({n: (w, tensors.biases.get(n, slim.layers[n][1])) for n, w in tensors.weights.items()})

    def _values(self, tensors: _Tensors, inputs: Inputs, chunk: int) -> Values:
        """Values at the goals: those of the slim network, and those of the full-width layers beside it."""
        slim = replace(self._slim(tensors), precision=self.network.dense.precision)
        values = values_at(self.network.trace, slim, inputs, self._wanted, chunk)
        return {**values, **{name: v for layer in self.full_width for name, v in self._beside(layer, tensors, values)}}

    @cached_property
    def _wanted(self) -> Collection[str]:
        """Values of the slim network that are goals, or that a full-width layer reads."""
        trace = self.network.trace
        beside = {name for la in self.full_width for name in (la.result, activation_behind(trace, la.result))}
        return (self.goals.keys() - beside) | {source(layer, trace) for layer in self.full_width}

    def _beside(self, layer: Layer, tensors: _Tensors, values: Values) -> Iterator[tuple[str, Tensor]]:
        """The result of a full-width layer on the slim values it reads, and that of the activation behind it."""
        trace, weight = self.network.trace, tensors.full_weights[layer.node]
        bias = tensors.full_biases.get(layer.node, self.walk.full_width[layer.node][1])
        bias = bias.to(weight.device) if bias is not None else weight.new_zeros(len(weight))
        with forward_precision(self.walk.slim.device, self.network.dense.precision):
            result = apply_affine(layer, values[source(layer, trace)], weight, bias)
        yield layer.result, result
        behind = activation_behind(trace, layer.result)
        if behind:
            yield behind, activated(trace, behind, result)

    @cached_property
    def _images_at_once(self) -> int:
        """Images whose activations fit the memory in the backward pass, or all of a chunk that must stay whole."""
        trace, few = self.network.trace, self.network.example.first(1)
        if few.fixed:
            return few.rows
        with torch.no_grad():
            values = run(trace, self.network.dense, trace.nodes, input_values(trace, few, self.network.dense.device))
        beside = [values[layer.result] for layer in self.full_width]
        size = sum(v.numel() * v.element_size() for v in (*values.values(), *beside) if isinstance(v, Tensor))
        return max(1, self.network.room(self.config) // (COPIES * max(size, 1)))
