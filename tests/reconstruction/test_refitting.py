"""Least squares of a unit's consumers, and of the layers that give the outputs."""

import math

import pytest
import torch
from networks import Chain, Residual, images, make
from torch import Tensor
from unit_problems import unit_problem

import ldrf
from ldrf.algebra import large_rows
from ldrf.config import PruneConfig
from ldrf.reconstruction.problem import Problem, neurons, source, target
from ldrf.reconstruction.refitting import moments_on, refitted
from ldrf.reconstruction.solution import Solution, cut_solution


def rows_of(problem: Problem, solution: Solution, held_out: bool) -> tuple[Tensor, Tensor]:
    """Inputs with a constant column and targets of a linear consumer, in float64."""
    (consumer,), calibration = problem.unit.consumers, problem.walk.calibration
    chunks = sorted(calibration.held_out) if held_out else calibration.fitting
    name = source(consumer.layer, problem.trace)
    x = torch.cat([neurons(problem, c, solution.weight, solution.bias)[name] for c in chunks]).double()
    t = torch.cat([target(problem, c, 0) for c in chunks]).double()
    return torch.cat([x, torch.ones(len(x), 1)], 1), t


@pytest.mark.parametrize("held_out", [False, True])
def test_moments_are_the_sums_over_all_rows(held_out: bool):
    with unit_problem(Chain, "conv2", 6) as problem:
        cut = cut_solution(problem)
        (moments,) = moments_on(problem, held_out, cut.weight, cut.bias, 0)
        x, t = rows_of(problem, cut, held_out)
    assert moments.rows == len(x)
    torch.testing.assert_close(moments.gram, x.T @ x, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(moments.cross, x.T @ t, rtol=1e-5, atol=1e-5)


def test_consumers_are_the_least_squares_solution():
    with unit_problem(Chain, "conv2", 6, rows=600) as problem:
        cut = cut_solution(problem)
        solution = refitted(problem, cut, PruneConfig(damping=0.0))
        x, t = rows_of(problem, cut, held_out=False)
    wanted = torch.linalg.lstsq(x, t).solution
    torch.testing.assert_close(solution.readers[0], wanted, rtol=1e-3, atol=1e-3)
    assert torch.equal(solution.weight, cut.weight), "the neurons stay as they are"


def test_where_rows_are_few_held_out_rows_choose_the_damping():
    with unit_problem(Chain, "conv2", 12, rows=48) as problem:
        cut = cut_solution(problem)
        solution = refitted(problem, cut, PruneConfig(damping=1e-4))
        (x, t), held_out = (rows_of(problem, cut, held_out) for held_out in (False, True))
    gram = x.T @ x
    errors = []
    for damping in (1e-4, 30e-4, 900e-4):
        level = damping * gram.diagonal().mean() * torch.eye(len(gram), dtype=torch.float64)
        reader = torch.linalg.solve(gram + level, x.T @ t + level @ cut.readers[0])
        errors.append(float((held_out[0] @ reader - held_out[1]).square().sum()))
    error = float((held_out[0] @ solution.readers[0] - held_out[1]).square().sum())
    assert error == pytest.approx(min(errors), rel=1e-3) and min(errors) < 0.99 * max(errors)


@pytest.mark.parametrize("fits", [True, False])
def test_an_output_layer_is_refitted_only_where_its_gram_matrix_fits(monkeypatch, fits: bool):
    model, x = make(Residual), images(128)
    columns = model.fc.in_features  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setattr("ldrf.reconstruction.refitting.COLUMNS", columns if fits else columns - 1)  # pyright: ignore
    config = ldrf.PruneConfig(steps=0, joint_steps=0, chunk=16, multiple=1)
    slim = ldrf.prune(model, [x], widths={"block1.conv1": 3}, config=config).model
    assert torch.equal(slim.fc.weight, model.fc.weight) is not fits  # pyright: ignore


@pytest.mark.parametrize(("solver", "refits"), [("none", False), ("closed-form", True)])
def test_a_solver_says_whether_outputs_are_refitted(solver, refits: bool):
    model, x = make(Residual), images(128)
    config = ldrf.PruneConfig(steps=0, joint_steps=0, chunk=16, multiple=1, solver=solver)
    slim = ldrf.prune(model, [x], widths={"block1.conv1": 3}, config=config).model
    assert torch.equal(slim.fc.weight, model.fc.weight) is not refits  # pyright: ignore


class Marked(torch.nn.Module):
    """A residual block whose first token is a thousand times as large as the others, and is divided down at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(8, 24, bias=False), torch.nn.Linear(24, 8, bias=False)

    def forward(self, x):
        x = x + self.down(torch.relu(self.up(x)))
        return x / x.square().mean(-1, keepdim=True).sqrt()


def test_a_token_far_larger_than_the_others_does_not_decide_the_weights(monkeypatch):
    """Without its factor the large token holds nearly all of the squares: neurons and weights would serve it alone."""
    torch.manual_seed(0)
    model, texts, first = Marked().eval(), torch.randn(48, 40, 8), 1000 * torch.randn(8)
    texts[:, 0] = first + texts[:, 0]
    config = ldrf.PruneConfig(solver="closed-form", coupled=False)
    with torch.no_grad():
        wanted = model(texts[32:])
    gaps = []
    for large in (large_rows.LARGE, math.inf):
        monkeypatch.setattr(large_rows, "LARGE", large)
        slim = ldrf.prune(model, texts[:32].split(8), widths={"up": 12}, config=config).model
        with torch.no_grad():
            gaps.append(float((slim(texts[32:]) - wanted)[:, 1:].square().mean()))
    assert gaps[0] < 0.8 * gaps[1]
