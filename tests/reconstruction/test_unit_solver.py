"""Whatever a solver proposes, the unit's neurons stay and the best of its candidates on held-out images is kept."""

from dataclasses import replace

import pytest
import torch
from networks import Chain
from torch import Tensor
from unit_problems import unit_problem

from ldrf.config import PruneConfig
from ldrf.reconstruction.problem import Problem
from ldrf.reconstruction.solution import Candidate, commit_solution, judged
from ldrf.reconstruction.unit_solver import Solver, find_solver, reconstruct
from ldrf.registry import SOLVERS


def noise(problem: Problem, cut: Candidate, config: PruneConfig) -> list[Candidate]:
    """Candidates that are worse than the plain cut, one of them not even a number."""
    solution = cut.solution
    spoilt = {"larger": 3 * solution.weight, "no number": float("nan") * solution.weight}
    return [judged(problem, way, replace(solution, weight=weight)) for way, weight in spoilt.items()]


def last(problem: Problem, kept: Tensor, config: PruneConfig) -> Tensor:
    """The last neurons instead of those that were selected."""
    return torch.arange(problem.unit.width - len(kept), problem.unit.width)


def solved(solver: Solver, width: int = 6):
    """The unit's reconstruction by a solver, its error measured again, and the width of the slim producer."""
    with unit_problem(Chain, "conv1", 12) as problem, SOLVERS.registered("mine", solver):
        walk, unit = problem.walk, problem.unit
        metrics = {c.goal: m for c, m in zip(unit.consumers, problem.metrics, strict=True)}
        config = replace(PruneConfig(), **{"solver": "mine"})
        found = reconstruct(walk, unit, torch.arange(width), metrics, config)
        commit_solution(walk, unit, found.kept, found.solution)
        return found, walk.slim.layers[unit.producer.node][0]


def test_a_solver_that_does_worse_leaves_the_plain_cut():
    found, weight = solved(Solver(noise))
    assert found.way == "cut" and found.error == found.cut_error
    assert list(found.candidates) == ["cut", "larger", "no number"] and found.candidates["larger"] > found.error
    assert weight.shape[0] == 6 and torch.isfinite(weight).all()


def test_a_solver_may_choose_the_neurons():
    found, weight = solved(Solver(noise, last))
    assert found.kept.tolist() == [6, 7, 8, 9, 10, 11]
    with unit_problem(Chain, "conv1", 12) as problem:
        assert torch.equal(weight, problem.walk.dense.layers[problem.unit.producer.node][0][6:])


@pytest.mark.parametrize("name", ["closed-form", "joint", "l1-mask"])
def test_errors_are_those_of_the_solution_that_is_kept(name):
    with unit_problem(Chain, "conv1", 6) as problem:
        unit = problem.unit
        metrics = {c.goal: m for c, m in zip(unit.consumers, problem.metrics, strict=True)}
        config = PruneConfig(solver=name, steps=5)
        found = reconstruct(problem.walk, unit, problem.kept, metrics, config)
    assert found.error == found.candidates[found.way] < found.cut_error


def test_every_built_in_solver_is_found_by_its_setting():
    assert SOLVERS.built_in == ("closed-form", "joint", "l1-mask", "none")
    together = {name: find_solver(PruneConfig(solver=name)).together for name in SOLVERS.built_in}  # pyright: ignore
    assert together == {"closed-form": False, "joint": True, "l1-mask": True, "none": False}
    assert not find_solver(PruneConfig(solver="none")).refits_outputs
