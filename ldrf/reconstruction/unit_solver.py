"""Solve R' and Q' of one unit so that the next embedding comes out as before (Eqn. 6, Alg. 1 stage 2).

The producer's weight W'_l = Q'_{l-1} R'_l makes the n' neurons that stay from the slim network's own inputs; Q'_l are
the consumers' weights on them. A solver proposes candidates, and the best of them on held-out images is kept.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from ldrf.config import PruneConfig
from ldrf.reconstruction.lockstep import Lockstep
from ldrf.reconstruction.problem import Problem, narrowed, open_problem
from ldrf.reconstruction.solution import Candidate, Solution, cut_solution, judged
from ldrf.registry import SOLVERS
from ldrf.runtime.device import CPU
from ldrf.units.unit import Unit

# (problem with the neurons that stay, the plain cut, settings) -> other solutions of the problem, judged
Solve = Callable[[Problem, Candidate, PruneConfig], Sequence[Candidate]]
# (problem with all neurons, those that selection would keep, settings) -> as many neurons to keep
Choose = Callable[[Problem, Tensor, PruneConfig], Tensor]


@dataclass(frozen=True)
class Solver:
    """One way to solve units: the ``ENTRY`` of a file in ``solvers/``. With ``choose`` it says which neurons stay."""

    solve: Solve
    choose: Choose | None = None
    refits_outputs: bool = True  # layers that give the model's outputs are refitted after the last unit
    together: bool = False  # at last, the layers of all units move together


@dataclass(frozen=True)
class Reconstruction:
    """The neurons and the solution kept for a unit, and its held-out errors relative to the power of its goals."""

    kept: Tensor
    solution: Solution
    cut_error: float
    error: float
    way: str  # which of the candidates won
    candidates: dict[str, float]


def find_solver(config: PruneConfig) -> Solver:
    """The solver that the settings name."""
    return SOLVERS.find(config.solver)


def reconstruct(
    walk: Lockstep, unit: Unit, kept: Tensor, metrics: Mapping[str, Tensor], config: PruneConfig
) -> Reconstruction:
    """Find the unit's R' and Q' on the calibration data of ``walk``, whose frontier stands at its producer.

    ``metrics`` gives, by node, the coordinates in which a consumer's outputs are compared.
    """
    solver = find_solver(config)
    with open_problem(walk, unit, metrics) as problem:
        if solver.choose is not None:
            kept = solver.choose(problem, kept, config)
        problem = narrowed(problem, kept)
        cut = judged(problem, "cut", cut_solution(problem))
        candidates = [cut, *solver.solve(problem, cut, config)]
        best = min(candidates, key=lambda candidate: candidate.error)
        errors = {candidate.way: candidate.error for candidate in candidates}
        return Reconstruction(problem.kept, best.solution.to(CPU), cut.error, best.error, best.way, errors)
