"""Along a chain the dynamic programme finds the best of all plans; elsewhere it says that there is no chain."""

import pytest
from timed_chain import CHOICES, ERRORS, best_of_all, layer, timed_chain

from ldrf.planning.chain_allocation import allocate_chain, chain_order
from ldrf.planning.cost_model import Size
from ldrf.planning.latency_model import LatencyModel


@pytest.fixture
def chain() -> LatencyModel:
    return timed_chain()


@pytest.mark.parametrize("ratio", [1.1, 1.25, 1.5, 1.8])
def test_it_is_the_best_of_all_plans(chain, ratio):
    order = chain_order(chain, CHOICES)
    assert order in (["a", "b", "c"], ["c", "b", "a"])
    widths = allocate_chain(chain, order, ratio, ERRORS, CHOICES)
    assert chain.at(widths) <= chain.at({}) / ratio * 1.002
    error = sum(ERRORS[name][CHOICES[name].index(width)] for name, width in widths.items())
    assert error == pytest.approx(best_of_all(chain, ratio))


def test_out_of_reach_it_is_the_smallest_of_all(chain):
    order = chain_order(chain, CHOICES)
    assert order is not None
    smallest = {name: widths[0] for name, widths in CHOICES.items()}
    assert allocate_chain(chain, order, 5.0, ERRORS, CHOICES) == smallest
    assert allocate_chain(chain, order, 500.0, ERRORS, CHOICES) == smallest


def test_a_ring_and_a_layer_of_three_units_are_no_chain(chain):
    geometry = chain.layers[0].table.wanted.geometry
    closing = layer("closing", Size({"c": 1.0}, 0.0), Size({"a": 1.0}, 0.0), geometry)
    ring = LatencyModel((*chain.layers, closing), 50.0, chain.full)
    assert chain_order(ring, CHOICES) is None
    meeting = layer("meeting", Size({"a": 1.0, "b": 1.0}, 0.0), Size({"c": 1.0}, 0.0), geometry)
    assert chain_order(LatencyModel((*chain.layers, meeting), 50.0, chain.full), CHOICES) is None
