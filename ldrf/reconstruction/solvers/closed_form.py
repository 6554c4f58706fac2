"""Q' by least squares, with the neurons as they were cut and, where the path is linear, as the SVD makes them."""

from ldrf.config import PruneConfig
from ldrf.reconstruction.low_rank import svd_solution
from ldrf.reconstruction.problem import Problem
from ldrf.reconstruction.refitting import refitted
from ldrf.reconstruction.solution import Candidate, judged
from ldrf.reconstruction.unit_solver import Solver


def solve(problem: Problem, cut: Candidate, config: PruneConfig) -> list[Candidate]:
    """Least squares from the plain cut; and the SVD's solution, before and after least squares."""
    candidates = [judged(problem, "closed form", refitted(problem, cut.solution, config))]
    exact = svd_solution(problem, cut.solution)
    if exact is not None:
        candidates.append(judged(problem, "svd", exact))
        candidates.append(judged(problem, "svd, closed form", refitted(problem, exact, config)))
    return candidates


ENTRY = Solver(solve)
