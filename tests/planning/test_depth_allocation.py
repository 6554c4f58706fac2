"""Widths and branches that go, against every combination of both."""

import itertools

import pytest
import torch

from ldrf.planning.allocation import allocate_by_error
from ldrf.planning.cost_model import CostModel, Term
from ldrf.planning.depth_allocation import PricedBranch, allocate_with_depth, with_zeros

FULL = {"a": 8, "b": 8, "c": 8}
COST = CostModel((Term(10, ("a",)), Term(8, ("b",)), Term(6, ("c",))), 20.0, FULL)
CHOICES = {name: (2, 4, 6, 8) for name in FULL}
CURVES = {name: factor * torch.linspace(1, 0, 9) ** 2 for name, factor in (("a", 4.0), ("b", 1.0), ("c", 2.0))}


def best_of_all(branches: tuple[PricedBranch, ...], budget: float) -> float:
    errors = []
    for number in range(len(branches) + 1):
        for gone in itertools.combinations(branches, number):
            units = {unit for branch in gone for unit in branch.units}
            for plan in itertools.product(*(CHOICES[n] for n in FULL if n not in units)):
                widths = dict(zip([n for n in FULL if n not in units], plan, strict=True)) | dict.fromkeys(units, 0)
                if COST.at(widths) <= budget:
                    errors.append(error_of(widths, branches))
    return min(errors)


def error_of(widths: dict[str, int], branches: tuple[PricedBranch, ...]) -> float:
    gone = [b for b in branches if not widths[b.units[0]]]
    return sum(float(CURVES[n][w]) for n, w in widths.items() if w) + sum(b.error for b in gone)


@pytest.mark.parametrize("errors", [(0.2, 0.1, 5.0), (5.0, 5.0, 5.0), (0.5, 0.3, 0.2), (0.01, 3.0, 0.01)])
@pytest.mark.parametrize("ratio", [1.3, 1.8, 2.5])
def test_nearly_as_good_as_the_best_of_all_combinations(errors, ratio):
    branches = tuple(PricedBranch((name,), error) for name, error in zip(FULL, errors, strict=True))
    widths = allocate_with_depth(allocate_by_error, COST, ratio, CURVES, CHOICES, branches)
    budget = COST.at({}) / ratio
    assert COST.at(widths) <= budget * (1 + 1e-9)
    assert error_of(widths, branches) <= 1.25 * best_of_all(branches, budget) + 1e-6


def test_without_branches_it_is_the_allocation_itself():
    assert allocate_with_depth(allocate_by_error, COST, 1.5, CURVES, CHOICES, ()) == allocate_by_error(
        COST, 1.5, CURVES, CHOICES
    )


def test_what_widths_alone_do_not_reach_is_reached():
    branches = (PricedBranch(("a", "b"), 50.0),)
    widths = allocate_with_depth(allocate_by_error, COST, 4.0, CURVES, CHOICES, branches)
    assert widths["a"] == widths["b"] == 0 < widths["c"] and COST.at(widths) <= COST.at({}) / 4
    assert with_zeros(CHOICES, branches) == {"a": (0, 2, 4, 6, 8), "b": (0, 2, 4, 6, 8), "c": (2, 4, 6, 8)}


def test_a_cost_without_units_lacks_all_that_they_touch():
    coupled = CostModel((Term(1, ("a", "b")), Term(3, ("c",)), Term(2, ("a",))), 7.0, FULL)
    assert coupled.without({"a"}).at({}) == 7 + 3 * 8 == coupled.at({"a": 0})


def test_a_plan_that_rounds_its_cost_costs_no_branch():
    """The dynamic programme of chains counts time in bins, and may end a little above the budget."""

    def rounded(cost, ratio, curves, choices):
        return allocate_by_error(cost, 0.99 * ratio, curves, choices)

    branches = (PricedBranch(("a",), 5.0), PricedBranch(("b",), 5.0))
    widths = allocate_with_depth(rounded, COST, 1.5, CURVES, CHOICES, branches)
    assert 0 not in widths.values()
