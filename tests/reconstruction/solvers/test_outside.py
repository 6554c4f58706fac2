"""A solver registered from outside the package: its solution is what comes out."""

from dataclasses import replace

import pytest
import torch
from networks import Chain, images, make

import ldrf
from ldrf.config import PruneConfig
from ldrf.reconstruction.problem import Problem
from ldrf.reconstruction.solution import Candidate, Solution
from ldrf.reconstruction.unit_solver import Solver
from ldrf.registry import SOLVERS
from ldrf.tracing.interpreter import read_tensor

CONFIG = PruneConfig(metric="output", selection="top-k", multiple=1)


def doubling(problem: Problem, cut: Candidate, config: PruneConfig) -> list[Candidate]:
    """Neurons at twice their size, and consumers at half: the same function, so no worse than the cut."""
    solution = cut.solution
    readers = tuple(torch.cat([reader[:-1] / 2, reader[-1:]]) for reader in solution.readers)
    doubled = Solution(2 * solution.weight, 2 * solution.bias, readers, solution.partners)
    return [Candidate("doubled", doubled, cut.error / 2)]


def test_its_solution_is_what_comes_out():
    model, x = make(Chain), images(32)
    with SOLVERS.registered("doubling", Solver(doubling, refits_outputs=False)):
        config = replace(CONFIG, **{"solver": "doubling"})
        result = ldrf.prune(model, [x], widths={"conv1": 5}, config=config)
    cut = ldrf.prune(model, [x], widths={"conv1": 5}, config=replace(CONFIG, solver="none"))
    assert [h.way for h in result.history] == ["doubled", "doubled"]
    mine, plain = (read_tensor(r.model, "fc.weight") for r in (result, cut))
    assert torch.equal(2 * mine, plain), "the last consumer is halved, as it reads doubled neurons"
    with torch.no_grad():
        torch.testing.assert_close(result.model(x), cut.model(x), rtol=1e-4, atol=1e-5)


def test_afterwards_its_name_is_unknown_again():
    with SOLVERS.registered("doubling", Solver(doubling)):
        assert replace(CONFIG, **{"solver": "doubling"}).solver == "doubling"
    with pytest.raises(ldrf.LdrfError, match="'solver' must be one of .*joint.* Got 'doubling'"):
        replace(CONFIG, **{"solver": "doubling"})
