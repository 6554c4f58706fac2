"""Layers of one kind get one width, at the least damage and within the budget."""

from itertools import product

import pytest
import torch

import ldrf
from ldrf.errors import LdrfError
from ldrf.planning.cost_model import CostModel, Term
from ldrf.planning.uniform import allocate_uniformly, kinds_of, tied_choices

FULL = {"blocks.0.up": 8, "blocks.1.up": 8, "blocks.0.down": 8, "blocks.1.down": 6}


def test_kinds_differ_in_more_than_numbers():
    assert list(kinds_of(FULL).values()) == [["blocks.0.up", "blocks.1.up"], ["blocks.0.down"], ["blocks.1.down"]]


def test_the_choices_of_a_kind_are_those_of_all_its_units():
    choices = {"blocks.0.up": (2, 4, 8), "blocks.1.up": (4, 6, 8), "blocks.0.down": (8,), "blocks.1.down": (3, 6)}
    tied = tied_choices(choices, FULL)
    assert tied["blocks.0.up"] == tied["blocks.1.up"] == (4, 8) and tied["blocks.1.down"] == (3, 6)


@pytest.mark.parametrize("ratio", [1.2, 1.7, 2.5])
def test_separable_costs_end_at_most_one_step_below_the_best_plan(ratio):
    cost = CostModel(tuple(Term(1.0, (name,)) for name in FULL), 2.0, FULL)
    errors = {name: torch.arange(width, -1, -1.0) ** 2 * (i + 1) for i, (name, width) in enumerate(FULL.items())}
    tied = tied_choices({name: tuple(range(1, width + 1)) for name, width in FULL.items()}, FULL)
    widths = allocate_uniformly(cost, ratio, errors, tied)
    assert widths["blocks.0.up"] == widths["blocks.1.up"] and cost.at(widths) <= cost.at({}) / ratio
    plans = [
        {"blocks.0.up": a, "blocks.1.up": a, "blocks.0.down": b, "blocks.1.down": c}
        for a, b, c in product(range(1, 9), range(1, 9), range(1, 7))
    ]
    spent = cost.at(widths)
    best = min(sum(float(errors[n][w]) for n, w in p.items()) for p in plans if cost.at(p) <= spent)
    assert sum(float(errors[n][w]) for n, w in widths.items()) == pytest.approx(best)


def test_uniform_does_not_go_with_depth():
    with pytest.raises(LdrfError, match="uniform=True and depth=True"):
        ldrf.PruneConfig(uniform=True, depth=True)
