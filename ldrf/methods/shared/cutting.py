"""Methods that rank neurons on the dense network and cut: no weight changes, as published before fine-tuning."""

from collections.abc import Callable

from torch import Tensor

from ldrf.calibration.network import Network
from ldrf.config import PruneConfig, Selection
from ldrf.methods.shared.method import Method, Step
from ldrf.planning.findings import Findings
from ldrf.planning.selection import neuron_scores
from ldrf.reconstruction.lockstep import Lockstep
from ldrf.reconstruction.problem import Problem, narrowed, open_problem
from ldrf.reconstruction.solution import Solution, cut_solution, held_out_error
from ldrf.reconstruction.unit_solver import Reconstruction
from ldrf.runtime.device import CPU
from ldrf.units.unit import Unit

# One score per neuron [n] for each unit by name; the largest stay.
Score = Callable[[Network, Findings, PruneConfig], dict[str, Tensor]]


def cutting_method(name: str, title: str, colour: str, score: Score, labelled: bool = False) -> Method:
    """A method that keeps each unit's neurons of the highest score as they are."""

    def begin(network: Network, findings: Findings, config: PruneConfig) -> Step:
        scores = score(network, findings, config)

        def step(walk: Lockstep, unit: Unit, width: int) -> Reconstruction:
            kept = scores[unit.name].argsort(descending=True, stable=True)[:width].sort().values
            with open_problem(walk, unit, findings.metrics) as problem:
                slim = narrowed(problem, kept)
                return judged(slim, cut_solution(slim), "cut")

        return step

    return Method(name, begin, title, colour, labelled=labelled)


def by_criterion(criterion: Selection) -> Score:
    """Scores by one of the criteria of :mod:`ldrf.planning.selection`."""

    def score(network: Network, findings: Findings, config: PruneConfig) -> dict[str, Tensor]:
        return {
            unit.name: neuron_scores(criterion, unit, network.dense, findings.surveys[unit.name], config.seed)
            for unit in network.units
        }

    return score


def judged(problem: Problem, solution: Solution, way: str) -> Reconstruction:
    """A solution with its error on held-out images, beside that of plain cutting."""
    errors = {"cut": held_out_error(problem, cut_solution(problem))}
    if way != "cut":
        errors[way] = held_out_error(problem, solution)
    return Reconstruction(problem.kept, solution.to(CPU), errors["cut"], errors[way], way, errors)
