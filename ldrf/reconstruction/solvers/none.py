"""Plain cutting: the neurons that stay keep their weights."""

from ldrf.config import PruneConfig
from ldrf.reconstruction.problem import Problem
from ldrf.reconstruction.solution import Candidate
from ldrf.reconstruction.unit_solver import Solver


def solve(problem: Problem, cut: Candidate, config: PruneConfig) -> list[Candidate]:
    """No candidates but the plain cut itself."""
    return []


ENTRY = Solver(solve, refits_outputs=False)
