"""R' and Q' together: the closed form, then descent on both from the best so far, then the closed form again."""

from ldrf.config import PruneConfig
from ldrf.reconstruction.problem import Problem
from ldrf.reconstruction.refitting import refitted
from ldrf.reconstruction.solution import Candidate, judged
from ldrf.reconstruction.solvers import closed_form
from ldrf.reconstruction.unit_descent import descended
from ldrf.reconstruction.unit_solver import Solver


def solve(problem: Problem, cut: Candidate, config: PruneConfig) -> list[Candidate]:
    """The candidates of the closed form, and those of the descent that starts from the best of them."""
    candidates = closed_form.solve(problem, cut, config)
    # The layers of a residual stream stand far apart: they are only cut, and none of them is moved.
    if not config.unit_steps or len(problem.partners) < len(problem.unit.partners):
        return candidates
    best = min([cut, *candidates], key=lambda candidate: candidate.error)
    moved = judged(problem, "descent", descended(problem, best.solution, config))
    last = judged(problem, "descent, closed form", refitted(problem, moved.solution, config))
    return [*candidates, moved, last]


ENTRY = Solver(solve, together=True)
