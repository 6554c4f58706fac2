"""Steps that save no time are jumped, and the greedy plan is about as good as the exact one."""

import pytest
import torch
from timed_chain import CHOICES, ERRORS, best_of_all, timed_chain

from ldrf.planning.allocation import total_errors
from ldrf.planning.time_allocation import allocate_by_jumps, allocate_by_time


@pytest.fixture
def chain():
    return timed_chain()


def test_a_width_that_costs_what_a_larger_one_costs_is_never_chosen(chain):
    for ratio in (1.1, 1.3, 1.5, 1.7):
        widths = allocate_by_jumps(chain, ratio, ERRORS, CHOICES)
        assert chain.at(widths) <= chain.at({}) / ratio
        for name, width in widths.items():
            wider = [w for w in CHOICES[name] if w > width]
            assert all(chain.saving(name, widths, w) < 0 for w in wider), (ratio, name)


def test_the_greedy_plan_is_near_the_best(chain):
    for ratio in (1.1, 1.3, 1.5, 1.7):
        widths = allocate_by_jumps(chain, ratio, ERRORS, CHOICES)
        error = sum(ERRORS[name][CHOICES[name].index(width)] for name, width in widths.items())
        assert error <= best_of_all(chain, ratio) + 2.0, ratio


def test_errors_are_those_of_the_convex_hull():
    curve = torch.tensor([9.0, 7.0, 4.0, 3.0, 0.0])
    assert total_errors(curve, (1, 2, 4)) == [6.5, 4.0, 0.0]


def test_a_chain_is_planned_exactly(chain):
    curves = {name: torch.linspace(1, 0, full + 1) ** 2 for name, full in chain.full.items()}
    exact = allocate_by_time(chain, 1.4, curves, CHOICES)
    greedy = allocate_by_jumps(
        chain, 1.4, {name: total_errors(curves[name], CHOICES[name]) for name in CHOICES}, CHOICES
    )

    def error(widths):
        return sum(total_errors(curves[n], CHOICES[n])[CHOICES[n].index(w)] for n, w in widths.items())

    assert error(exact) <= error(greedy) + 1e-6
