"""The joint solver: descent from the best candidate so far, where the layers may move."""

from dataclasses import replace

import pytest
import torch
from networks import Chain, Inverted, images, make
from unit_problems import unit_problem

import ldrf
from ldrf.config import PruneConfig
from ldrf.reconstruction.solution import cut_solution, held_out_error, judged
from ldrf.reconstruction.solvers import closed_form
from ldrf.reconstruction.solvers.joint import solve
from ldrf.reconstruction.unit_descent import descended

CONFIG = PruneConfig(steps=20)


def test_descent_gains_over_the_closed_form_and_moves_the_neurons():
    with unit_problem(Chain, "conv1", 6) as problem:
        cut = judged(problem, "cut", cut_solution(problem))
        candidates = {candidate.way: candidate for candidate in solve(problem, cut, CONFIG)}
    assert list(candidates) == ["closed form", "descent", "descent, closed form"]
    best = min(candidates["descent"].error, candidates["descent, closed form"].error)
    assert best < 0.95 * candidates["closed form"].error
    assert not torch.equal(candidates["descent"].solution.weight, cut.solution.weight)


def test_without_steps_it_is_the_closed_form():
    with unit_problem(Chain, "conv1", 6) as problem:
        cut = judged(problem, "cut", cut_solution(problem))
        none = replace(CONFIG, steps=0)
        mine, theirs = solve(problem, cut, none), closed_form.solve(problem, cut, none)
    assert [(c.way, c.error) for c in mine] == [(c.way, c.error) for c in theirs]


def test_where_the_plain_cut_is_best_descent_starts_there():
    """At full width nothing can be gained."""
    with unit_problem(Chain, "conv1", 12) as problem:
        cut = judged(problem, "cut", cut_solution(problem))
        once = replace(CONFIG, steps=1)  # the first step has a rate of zero
        candidates = {candidate.way: candidate for candidate in solve(problem, cut, once)}
        start = min([cut, candidates["closed form"]], key=lambda candidate: candidate.error)
        again = descended(problem, start.solution, once)
        assert candidates["descent"].error == pytest.approx(held_out_error(problem, again), abs=1e-12)
        torch.testing.assert_close(candidates["descent"].solution.weight, start.solution.weight)


def test_layers_of_a_residual_stream_are_not_moved():
    config = PruneConfig(coupled=True, steps=5, joint_steps=0, multiple=1)
    result = ldrf.prune(make(Inverted), [images(32)], widths={"stem": 4}, config=config)
    assert result.history[0].name == "stem" and result.history[0].way in ("cut", "closed form")
