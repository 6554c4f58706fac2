"""The closed form: least squares from the plain cut, and the SVD where nothing nonlinear lies in between."""

import torch
from networks import Chain, LinearOnly
from unit_problems import unit_problem

from ldrf.config import PruneConfig
from ldrf.reconstruction.solution import cut_solution, judged
from ldrf.reconstruction.solvers.closed_form import ENTRY, solve

CONFIG = PruneConfig(damping=1e-4)


def test_least_squares_alone_behind_a_nonlinearity():
    with unit_problem(Chain, "conv1", 6) as problem:
        cut = judged(problem, "cut", cut_solution(problem))
        (candidate,) = solve(problem, cut, CONFIG)
    assert candidate.way == "closed form" and candidate.error < cut.error
    assert torch.equal(candidate.solution.weight, cut.solution.weight), "the neurons stay as they are"


def test_the_svd_as_well_between_linear_layers():
    with unit_problem(LinearOnly, "first", 8, rows=200) as problem:
        cut = judged(problem, "cut", cut_solution(problem))
        candidates = {candidate.way: candidate for candidate in solve(problem, cut, CONFIG)}
    assert list(candidates) == ["closed form", "svd", "svd, closed form"]
    assert candidates["svd"].error < cut.error
    assert not torch.equal(candidates["svd"].solution.weight, cut.solution.weight)


def test_the_units_do_not_move_together_afterwards():
    assert not ENTRY.together and ENTRY.refits_outputs and ENTRY.choose is None
