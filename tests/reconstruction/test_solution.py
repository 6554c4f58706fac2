"""A unit's solution: the plain cut, its error on held-out images, and how it gets into the slim network."""

from dataclasses import replace

import pytest
import torch
from networks import Chain, Gated, Inverted, Residual
from torch import nn
from unit_problems import unit_problem

from ldrf.reconstruction.problem import neurons, source, target
from ldrf.reconstruction.solution import commit_solution, cut_solution, held_out_error, judged
from ldrf.tracing.interpreter import run
from ldrf.tracing.lean_run import input_values
from ldrf.units.indices import cut_weights


def first_unit(kind: type[nn.Module], network) -> tuple[str, int]:
    unit = network(kind).units[0]
    return unit.name, unit.width


@pytest.mark.parametrize("kind", [Chain, Residual, Inverted, Gated])
def test_a_plain_cut_committed_is_the_cut_network(kind: type[nn.Module], network):
    name, width = first_unit(kind, network)
    with unit_problem(kind, name, width // 2) as problem:
        walk, unit = problem.walk, problem.unit
        commit_solution(walk, unit, problem.kept, cut_solution(problem))
        plain = cut_weights(walk.trace, (unit,), walk.dense, {name: problem.kept})
        values = input_values(walk.trace, walk.calibration.chunks[0])
        with torch.no_grad():
            mine = run(walk.trace, walk.slim, walk.trace.nodes, dict(values))
            theirs = run(walk.trace, plain, walk.trace.nodes, dict(values))
    for output in walk.trace.outputs:
        torch.testing.assert_close(mine[output], theirs[output], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", [Chain, Residual, Inverted, Gated])
def test_at_full_width_a_cut_loses_nothing(kind: type[nn.Module], network):
    name, width = first_unit(kind, network)
    with unit_problem(kind, name, width) as problem:
        assert held_out_error(problem, cut_solution(problem)) < 1e-10


def test_the_error_is_the_squared_distance_on_held_out_images_by_dense_algebra():
    """A linear consumer without an activation behind it: nothing is taken behind one."""
    with unit_problem(Chain, "conv2", 6) as problem:
        cut = cut_solution(problem)
        (consumer,) = problem.unit.consumers
        assert consumer.activation is None and consumer.layer.is_linear
        gaps, targets = [], []
        for chunk in sorted(problem.walk.calibration.held_out):
            x = neurons(problem, chunk, cut.weight, cut.bias)[source(consumer.layer, problem.trace)].double()
            targets.append(target(problem, chunk, 0).double())
            gaps.append(x @ cut.readers[0][:-1] + cut.readers[0][-1] - targets[-1])
        spread = sum(float((t - t.mean(0)).square().sum()) for t in targets)
        wanted = float(torch.cat(gaps).square().sum()) / spread
        candidate = judged(problem, "cut", cut)
    assert candidate.error == pytest.approx(wanted, rel=1e-4) and wanted > 0.01
    assert candidate.way == "cut" and candidate.solution is cut


def test_a_committed_solution_is_a_copy():
    with unit_problem(Chain, "conv1", 6) as problem:
        cut = cut_solution(problem)
        solution = replace(cut, weight=cut.weight.flip(0))
        commit_solution(problem.walk, problem.unit, problem.kept, solution)
        weight, _ = problem.walk.slim.layers[problem.unit.producer.node]
        assert torch.equal(weight, solution.weight) and weight.data_ptr() != solution.weight.data_ptr()
        assert weight.is_contiguous()
