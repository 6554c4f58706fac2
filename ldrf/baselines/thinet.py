"""J.-H. Luo, J. Wu, W. Lin, ThiNet: A Filter Level Pruning Method for Deep Neural Network Compression, ICCV 2017.

Channels are removed one at a time, each time the one that leaves the removed contributions smallest in the next
layer's output; then the channels that stay are scaled, one number each, by least squares.
"""

import math

import torch
from torch import Tensor

from ldrf.baselines.contributions import Contributions
from ldrf.baselines.repairing import repairing_method
from ldrf.config import PruneConfig
from ldrf.problem import Problem
from ldrf.reconstruction import Solution, cut_solution
from ldrf.rows import damped_factor


def remove_greedily(gram: Tensor, width: int) -> Tensor:
    """Indices [width] kept when removing one neuron after the other, each time the least ||sum of removed Z_i||^2."""
    gone = torch.zeros(len(gram), dtype=torch.bool)
    removed = torch.zeros(len(gram), dtype=gram.dtype)  # <Z_i, sum of removed Z>
    for _ in range(len(gram) - width):
        added = 2 * removed + gram.diagonal()
        added[gone] = torch.inf
        least = int(added.argmin())
        gone[least] = True
        removed += gram[least]
    return (~gone).nonzero().flatten()


def scales(found: Contributions, kept: Tensor, damping: float) -> Tensor:
    """ThiNet's w-hat [n']: min ||T - sum_i w_i Z_i||^2 over the kept neurons, pulled towards 1 by ``damping``."""
    gram = found.gram[kept][:, kept]
    missing = (found.cross[kept] - gram.sum(1))[:, None]
    return 1 + torch.cholesky_solve(missing, damped_factor(gram, damping))[:, 0]


def repair(problem: Problem, found: list[Contributions], config: PruneConfig) -> Solution:
    """The consumers' weights on each kept neuron, scaled by its w-hat; biases and the producer are as before."""
    cut = cut_solution(problem)
    readers = []
    for consumer, reader, columns, own in zip(problem.unit.consumers, cut.readers, problem.columns, found, strict=True):
        owner = torch.as_tensor(consumer.channels)[columns // math.prod(consumer.layer.kernel)]
        factors = torch.ones(problem.unit.width + 1, dtype=torch.float64)  # the last is for inputs of no neuron, -1
        factors[problem.kept] = scales(own, problem.kept, config.damping)
        readers.append(torch.cat([reader[:-1] * factors[owner, None], reader[-1:]]))
    return Solution(cut.weight, cut.bias, tuple(readers))


def choose(found: Contributions, width: int) -> Tensor:
    return remove_greedily(found.gram, width)


THINET = repairing_method("thinet", choose, repair, "channel scales")
