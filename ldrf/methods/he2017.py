"""Y. He, X. Zhang, J. Sun, Channel Pruning for Accelerating Very Deep Neural Networks, ICCV 2017.

The channels of a layer's input are chosen by a LASSO on one coefficient a channel, its penalty raised until no more are
left than wanted; then the layer's weights are solved by least squares. Inputs come from the slim network, targets from
the dense one; behind a residual branch the target is the dense sum minus the slim shortcut.
"""

from dataclasses import replace

import torch
from torch import Tensor

from ldrf.calibration.network import Network
from ldrf.config import PruneConfig
from ldrf.methods.shared.contributions import contributions, total
from ldrf.methods.shared.cutting import judged
from ldrf.methods.shared.lasso import lasso_support
from ldrf.methods.shared.method import Method, Step
from ldrf.planning.findings import Findings
from ldrf.reconstruction.lockstep import Lockstep
from ldrf.reconstruction.problem import Problem, narrowed, open_problem
from ldrf.reconstruction.refitting import refitted
from ldrf.reconstruction.solution import Solution, cut_solution
from ldrf.reconstruction.unit_solver import Reconstruction
from ldrf.units.unit import Unit


def choose(problem: Problem, width: int, seed: int) -> Tensor:
    """The neurons left in min ||T - sum_i beta_i X_i W_i||^2 + lambda ||beta||_1, over all consumers."""
    added = total(contributions(problem, seed, centred=True))
    return torch.from_numpy(lasso_support(added.gram.cpu().numpy(), added.cross.cpu().numpy(), width))


def repair(problem: Problem, config: PruneConfig) -> Solution:
    """The consumers' weights by least squares; the producer is only cut."""
    return refitted(problem, replace(cut_solution(problem), partners={}), config)


def begin(network: Network, findings: Findings, config: PruneConfig) -> Step:
    def step(walk: Lockstep, unit: Unit, width: int) -> Reconstruction:
        with open_problem(walk, unit, findings.metrics) as problem:
            slim = narrowed(problem, choose(problem, width, config.seed))
            return judged(slim, repair(slim, config), "least squares")

    return step


ENTRY = Method("he2017", begin, "He et al. 2017", "#c8553d")
