"""Neurons change hands between two units only where that lowers the error, and never over the budget."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldrf.planning import exchange
from ldrf.planning.cost_model import CostModel, Term
from ldrf.planning.exchange import exchanged

CHOICES = {"a": (4, 8, 12, 16), "b": (8, 16, 24, 32), "c": (8, 16, 24, 32)}
COST = CostModel((Term(8.0, ("a",)), Term(3.0, ("b",)), Term(0.1, ("b", "c"))), 5.0, {"a": 16, "b": 32, "c": 32})

falling = st.lists(st.floats(0.0, 1.0), min_size=3, max_size=3).map(lambda steps: [sum(steps[i:]) for i in range(4)])


def error(errors, widths) -> float:
    return sum(errors[name][CHOICES[name].index(width)] for name, width in widths.items())


@given(st.fixed_dictionaries(dict.fromkeys(CHOICES, falling)), st.tuples(*map(st.sampled_from, CHOICES.values())))
def test_the_error_falls_to_where_no_exchange_lowers_it(errors, start):
    widths, budget = dict(zip(CHOICES, start, strict=True)), COST.at(dict(zip(CHOICES, start, strict=True)))
    better = exchanged(COST, widths, budget, errors, CHOICES)
    assert widths == dict(zip(CHOICES, start, strict=True))  # what is given stays as it is
    assert COST.at(better) <= budget + 1e-6
    assert error(errors, better) <= error(errors, widths)
    for (one, other), i, j in product([("a", "b"), ("a", "c"), ("b", "c")], range(4), range(4)):
        tried = {**better, one: CHOICES[one][i], other: CHOICES[other][j]}
        changes = (tried[one] - better[one]) * (tried[other] - better[other])
        if changes < 0 and COST.at(tried) <= budget:  # one is wider, the other narrower
            assert error(errors, tried) >= error(errors, better) - 1e-9


def test_one_unit_has_nobody_to_exchange_with():
    assert exchanged(COST, {"a": 8}, 1e9, {"a": [3.0, 2.0, 1.0, 0.0]}, CHOICES) == {"a": 8}


def test_with_many_units_fewer_choices_change_hands_at_once(monkeypatch: pytest.MonkeyPatch):
    errors = {"a": [4.0, 4.0, 0.0, 0.0], "b": [1.0, 0.5, 0.0, 0.0], "c": [0.0] * 4}  # a gains by two steps, not by one
    widths, budget = {"a": 4, "b": 32, "c": 8}, COST.at({"a": 4, "b": 32, "c": 8}) + 20
    assert exchanged(COST, widths, budget, errors, CHOICES)["a"] == 12
    monkeypatch.setattr(exchange, "TRIALS", 6)
    assert exchanged(COST, widths, budget, errors, CHOICES)["a"] == 4
