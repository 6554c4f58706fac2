"""Adam on R' and Q' of one unit together (Eqn. 6)."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ldrf.algebra.descent import Scaled, descend, filled, leaves, scaled
from ldrf.config import PruneConfig
from ldrf.reconstruction.problem import Problem, goal_power, neurons, read, source, unit_loss
from ldrf.reconstruction.solution import Solution
from ldrf.runtime.device import exact, single
from ldrf.runtime.processes import no_loss, summed_gradients


class Moving(NamedTuple):
    """The tensors that descent moves, or for each of them what moves it; consumers' as [d', o] and [o]."""

    weight: Any
    bias: Any
    matrices: tuple[Any, ...]
    constants: tuple[Any, ...]
    partners: dict[str, tuple[Any, Any]]  # weight and bias by node

    @classmethod
    def of(cls, solution: Solution) -> "Moving":
        """The tensors of a solution."""
        matrices = tuple(single(reader[:-1], solution.weight) for reader in solution.readers)
        constants = tuple(single(reader[-1], solution.weight) for reader in solution.readers)
        return cls(solution.weight, solution.bias, matrices, constants, dict(solution.partners))

    def solution(self) -> Solution:
        """The solution that has these tensors."""
        pairs = zip(self.matrices, self.constants, strict=True)
        readers = tuple(exact(torch.cat([matrix, constant[None]])) for matrix, constant in pairs)
        return Solution(self.weight, self.bias, readers, self.partners)


def descended(problem: Problem, start: Solution, config: PruneConfig) -> Solution:
    """The solution after the steps per unit from ``start``; biases move where their layers can add a constant."""
    calibration = problem.walk.calibration
    moving: Moving = scaled(Moving.of(start))
    first = calibration.fitting[0]
    power = goal_power(problem, first) / calibration.sizes[first] + 1e-30

    def losses(chunk: int) -> list[Tensor]:
        tensors = summed_gradients(*(tensor() for tensor in leaves(moving)))
        if not calibration.own([chunk]):
            return [no_loss(tensors)]
        outputs = _outputs(problem, chunk, filled(moving, tensors))
        return [unit_loss(problem, chunk, outputs) / calibration.sizes[chunk] / power]

    def read_ahead(chunk: int) -> None:
        problem.walk.store.read_ahead(chunk, "unit")

    free = _free(problem, moving)
    descend(free, losses, calibration.fitting, config.unit_steps, config.rate, config.seed, prepare=read_ahead)
    with torch.no_grad():
        return filled(moving, [tensor().detach() for tensor in leaves(moving)]).solution()


def _free(problem: Problem, moving: Moving) -> list[Scaled]:
    """What descent may move: all weights, and the biases of layers that have one."""
    layers = (problem.unit.producer, *problem.partners, *(c.layer for c in problem.unit.consumers))
    partners = (moving.partners[layer.node][1] for layer in problem.partners)
    biases = zip((moving.bias, *partners, *moving.constants), layers, strict=True)
    weights = [moving.weight, *(weight for weight, _ in moving.partners.values()), *moving.matrices]
    return [*weights, *(bias for bias, layer in biases if layer.has_bias)]


def _outputs(problem: Problem, chunk: int, tensors: Moving) -> list[Tensor]:
    """Outputs of the consumers for one chunk."""
    values = neurons(problem, chunk, tensors.weight, tensors.bias, tensors.partners)
    solved = zip(problem.unit.consumers, tensors.matrices, tensors.constants, strict=True)
    return [
        read(problem, c, values[source(c.layer, problem.trace)], matrix, constant) for c, matrix, constant in solved
    ]
