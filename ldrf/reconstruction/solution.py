"""The slim weights R' and Q' of one unit, from the plain cut on, and how good they are on held-out images (Eqn. 6)."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from ldrf.reconstruction.lockstep import Lockstep
from ldrf.reconstruction.problem import (
    Affine,
    Problem,
    cut_carriers,
    goal_power,
    kept_outputs,
    neurons,
    read,
    source,
    unit_loss,
)
from ldrf.runtime.device import exact, exact_device, single
from ldrf.runtime.processes import sum_number
from ldrf.units.unit import Unit


@dataclass(frozen=True)
class Solution:
    """The producer's slim weight and bias [n', ...], and per consumer a matrix [d' + 1, o] with the bias last.

    ``partners`` are slim weights and biases of layers that meet the producer; partners that are not named are only cut.
    """

    weight: Tensor
    bias: Tensor
    readers: tuple[Tensor, ...]
    partners: Affine = field(default_factory=dict)

    def to(self, device: torch.device) -> "Solution":
        """The same on a device; a solution is handed on, kept and read back on the CPU."""
        partners = {node: (weight.to(device), bias.to(device)) for node, (weight, bias) in self.partners.items()}
        readers = tuple(reader.to(exact_device(device)) for reader in self.readers)
        return Solution(self.weight.to(device), self.bias.to(device), readers, partners)


@dataclass(frozen=True)
class Candidate:
    """A solution, the name of the way it was found, and its error on held-out images relative to the goals' power."""

    way: str
    solution: Solution
    error: float


def judged(problem: Problem, way: str, solution: Solution) -> Candidate:
    """A solution together with its held-out error."""
    return Candidate(way, solution, held_out_error(problem, solution))


@torch.no_grad()
def held_out_error(problem: Problem, solution: Solution) -> float:
    """Held-out loss of a solution, relative to the power of its goals."""
    unit, calibration = problem.unit, problem.walk.calibration
    loss = 0.0
    for chunk in problem.walk.store.in_turn(calibration.own(sorted(calibration.held_out)), "unit"):
        values = neurons(problem, chunk, solution.weight, solution.bias, solution.partners)
        outputs = [
            read(problem, c, values[source(c.layer, problem.trace)], *_affine(reader, solution.weight))
            for c, reader in zip(unit.consumers, solution.readers, strict=True)
        ]
        loss += float(unit_loss(problem, chunk, outputs))
    power = sum(goal_power(problem, chunk) for chunk in sorted(calibration.held_out))
    return sum_number(loss) / (power + 1e-30)


def cut_solution(problem: Problem) -> Solution:
    """Plain cutting: R' picks the kept neurons, Q' are the consumers' current weights on them."""
    readers = []
    for consumer, columns in zip(problem.unit.consumers, problem.columns, strict=True):
        weight, constant = problem.walk.slim.affine(consumer.layer.node)
        if consumer.outputs_now is not None:
            left = torch.as_tensor(consumer.outputs_now)
            weight, constant = weight[left], constant[left]
        readers.append(exact(torch.cat([weight.flatten(1)[:, columns].T, constant[None]])))
    layers = _cut_layers(problem)
    weight, bias = layers.pop(problem.unit.producer.node)
    return Solution(weight, bias, tuple(readers), layers)


def _cut_layers(problem: Problem) -> dict[str, tuple[Tensor, Tensor]]:
    """Producer and partners with only the outputs that stay, by node.

    Attention divides scores by the root of the width of a head; where that shrinks along, the queries are scaled.
    """
    unit, layers = problem.unit, {}
    for node, own in kept_outputs(problem).items():
        weight, bias = problem.walk.slim.affine(node)
        factor = torch.ones(len(weight), device=weight.device)
        if unit.compared and unit.compared.heads and unit.compared.rescales and node == unit.compared.layers[0]:
            factor[unit.compared.heads[0].flatten()] = (len(problem.kept) / unit.width) ** 0.5
        layers[node] = weight[own] * factor[own].view(-1, *[1] * (weight.ndim - 1)), bias[own] * factor[own]
    return layers


def commit_solution(walk: Lockstep, unit: Unit, kept: Tensor, solution: Solution) -> None:
    """Write a unit's solution into the slim weights: W'_l for the producer, Q'_l for its consumers."""
    slim, solution = cut_carriers(walk.trace, unit, walk.slim, kept), solution.to(walk.slim.device)
    affine = {unit.producer.node: (solution.weight, solution.bias), **solution.partners}
    changed = {node: (_laid_out(weight), _laid_out(bias)) for node, (weight, bias) in affine.items()}
    producers = tuple(changed)
    for consumer, reader in zip(unit.consumers, solution.readers, strict=True):
        layer = consumer.layer
        weight, bias = _affine(reader, solution.weight)
        weight = weight.T.reshape(reader.shape[1], -1, *layer.kernel)
        changed[layer.node] = (_laid_out(weight), _laid_out(bias))
    walk.commit(slim.with_layers(changed), producers)


def _affine(reader: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
    """A consumer's matrix [d', o] and bias [o] in float32, on the device of ``like``."""
    return single(reader[:-1], like), single(reader[-1], like)


def _laid_out(tensor: Tensor) -> Tensor:
    """A contiguous copy: a solution that is read back from the journal must compute the same bits."""
    return tensor.clone(memory_format=torch.contiguous_format)
