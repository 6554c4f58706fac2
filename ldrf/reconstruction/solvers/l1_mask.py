"""Neurons chosen by the mask of Eqn. 4, learned under an l1 penalty; R' and Q' are then solved as by ``joint``."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ldrf.config import PruneConfig
from ldrf.reconstruction.metric import measured
from ldrf.reconstruction.neuron_mask import STEPS, Capped, MaskProblem, MaskSettings, learn_mask
from ldrf.reconstruction.problem import Problem, goal_power, neurons, read, source, target
from ldrf.reconstruction.solvers import joint
from ldrf.reconstruction.unit_solver import Solver
from ldrf.runtime.device import exact, single
from ldrf.runtime.processes import no_loss, sum_over, summed_gradients
from ldrf.tracing.patches import output_rows
from ldrf.units.unit import Consumer, Unit


def choose(problem: Problem, kept: Tensor, config: PruneConfig) -> Tensor:
    """As many neurons as ``kept`` has: those with the largest m, or ``kept`` itself where the mask does not apply."""
    if len(kept) == problem.unit.width or not has_own_mask(problem.unit):
        return kept
    return masked_neurons(problem, len(kept), config)


def has_own_mask(unit: Unit) -> bool:
    """Whether Eqn. 4's mask applies: one layer makes the neurons, and its consumers read nothing else."""
    alone = not unit.partners and unit.width == unit.producer.outputs
    return alone and all((c.channels >= 0).all() for c in unit.consumers)


def masked_neurons(problem: Problem, width: int, config: PruneConfig) -> Tensor:
    """Indices of the ``width`` neurons with the largest m in Eqn. 4; ``problem.kept`` must name all neurons.

    m acts on the consumers' inputs, behind whatever the path does. Their biases have a closed form for any m and Q', so
    the error is that about the mean of each output.
    """
    unit, walk = problem.unit, problem.walk
    weight, bias = walk.slim.affine(unit.producer.node)
    layer = Capped(torch.cat([weight.flatten(1), bias[:, None]], 1))

    def error(chunk: int, readers: list[Tensor]) -> Tensor:
        moved, *readers = summed_gradients(layer(), *readers)
        lost = no_loss([moved, *readers])
        gaps = _gaps(problem, chunk, moved[:, :-1].reshape(weight.shape), moved[:, -1], readers)
        for gap, metric in zip(gaps, problem.metrics, strict=True):
            # The mean is over all processes. It need not be differentiated: about it the gaps sum to zero.
            whole = sum_over(exact(torch.cat([gap.detach().sum(0), gap.new_full((1,), len(gap))])))
            lost = lost + measured(gap - single(whole[:-1] / whole[-1], gap), metric, -1).square().sum()
        return lost / (goal_power(problem, chunk) + 1e-30)

    matrices = [walk.slim.layer(c.layer.node)[0].flatten(1).T for c in unit.consumers]
    owners = [_owner(consumer) for consumer in unit.consumers]
    masked = MaskProblem(error, matrices, owners, unit.width, walk.calibration.fitting, [layer.delta])
    steps = min(config.unit_steps, STEPS)
    settings = MaskSettings(width, config.lambda_1, config.lambda_2, steps, seed=config.seed)
    return learn_mask(masked, settings).kept(width)


def _gaps(problem: Problem, chunk: int, weight: Tensor, bias: Tensor, readers: Sequence[Tensor]) -> list[Tensor]:
    """Each consumer's outputs minus their target [rows, o]; no rows where this process has none of the chunk."""
    unit = problem.unit
    if not problem.walk.calibration.own([chunk]):
        return [weight.new_zeros(0, consumer.layer.outputs) for consumer in unit.consumers]
    values, gaps = neurons(problem, chunk, weight, bias), []
    for i, (consumer, reader) in enumerate(zip(unit.consumers, readers, strict=True)):
        x = values[source(consumer.layer, problem.trace)]
        gap = read(problem, consumer, x, reader, reader.new_zeros(consumer.layer.outputs)) - target(problem, chunk, i)
        gaps.append(output_rows(consumer.layer, gap, None).float())
    return gaps


def _owner(consumer: Consumer) -> Tensor:
    """The neuron behind each column of the consumer's flattened weight."""
    return torch.as_tensor(consumer.channels).repeat_interleave(math.prod(consumer.layer.kernel))


ENTRY = Solver(joint.solve, choose, together=True)
