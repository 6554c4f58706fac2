"""J.-H. Luo, J. Wu, W. Lin, ThiNet: A Filter Level Pruning Method for Deep Neural Network Compression, ICCV 2017.

Channels are removed one at a time, each time the one that leaves the removed contributions smallest in the next
layer's output; then the channels that stay are scaled, one number each, by least squares.
"""

import math

import torch
from torch import Tensor

from ldrf.algebra.moments import damped_factor
from ldrf.calibration.network import Network
from ldrf.config import PruneConfig
from ldrf.methods.shared.contributions import Contributions, contributions, total
from ldrf.methods.shared.cutting import judged
from ldrf.methods.shared.method import Method, Step
from ldrf.planning.findings import Findings
from ldrf.reconstruction.lockstep import Lockstep
from ldrf.reconstruction.problem import Problem, narrowed, open_problem
from ldrf.reconstruction.solution import Solution, cut_solution
from ldrf.reconstruction.unit_solver import Reconstruction
from ldrf.units.unit import Unit


def remove_greedily(gram: Tensor, width: int) -> Tensor:
    """Indices [width] kept when removing one neuron after the other, each time the least ||sum of removed Z_i||^2."""
    gram = gram.cpu()  # a loop over single numbers
    gone = torch.zeros(len(gram), dtype=torch.bool)
    removed = torch.zeros(len(gram), dtype=gram.dtype)  # <Z_i, sum of removed Z>
    for _ in range(len(gram) - width):
        added = 2 * removed + gram.diagonal()
        added[gone] = torch.inf
        least = int(added.argmin())
        gone[least] = True
        removed += gram[least]
    return (~gone).nonzero().flatten()


def scales(added: Contributions, kept: Tensor, damping: float) -> Tensor:
    """ThiNet's w-hat [n']: min ||T - sum_i w_i Z_i||^2 over the kept neurons, pulled towards 1 by ``damping``."""
    gram = added.gram[kept][:, kept]
    missing = (added.cross[kept] - gram.sum(1))[:, None]
    return 1 + torch.cholesky_solve(missing, damped_factor(gram, damping))[:, 0]


def repair(problem: Problem, added: list[Contributions], damping: float) -> Solution:
    """The consumers' weights on each kept neuron, scaled by its w-hat; biases and the producer are as before."""
    cut = cut_solution(problem)
    readers = []
    for consumer, reader, columns, own in zip(problem.unit.consumers, cut.readers, problem.columns, added, strict=True):
        owner = torch.as_tensor(consumer.channels)[columns // math.prod(consumer.layer.kernel)]
        factors = scales(own, problem.kept, damping)[torch.searchsorted(problem.kept, owner)]
        others = (owner < 0).to(factors.device)  # columns of other units stay as they are
        factors = torch.where(others, torch.ones_like(factors), factors)
        readers.append(torch.cat([reader[:-1] * factors[:, None], reader[-1:]]))
    return Solution(cut.weight, cut.bias, tuple(readers))


def begin(network: Network, findings: Findings, config: PruneConfig) -> Step:
    def step(walk: Lockstep, unit: Unit, width: int) -> Reconstruction:
        with open_problem(walk, unit, findings.metrics) as problem:
            added = contributions(problem, config.seed, centred=False)
            kept = remove_greedily(total(added).gram, width)
            slim = narrowed(problem, kept)
            return judged(slim, repair(slim, added, config.damping), "channel scales")

    return step


ENTRY = Method("thinet", begin, "ThiNet (Luo 2017)", "#2f6db5")
