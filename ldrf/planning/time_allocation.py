"""Widths for a budget of time: steps that save nothing are jumped, so a width that costs what a larger one costs is
never chosen."""

import heapq
from collections.abc import Mapping

from torch import Tensor

from ldrf.planning.allocation import total_errors
from ldrf.planning.chain_allocation import allocate_chain, chain_order
from ldrf.planning.cost_model import Cost
from ldrf.planning.exchange import exchanged
from ldrf.planning.latency_model import LatencyModel
from ldrf.units.width_choices import Choices

JUMP = 8  # choices that one step may go down or up
SWEEPS = 8  # times that all units are looked at, at most
PRICES = 14  # prices of a second that are tried


def allocate_by_time(
    model: LatencyModel, ratio: float, errors: Mapping[str, Tensor], choices: Choices
) -> dict[str, int]:
    """The least error within the budget: exact along chains, else step by step where a saved second costs least."""
    totals = {name: total_errors(errors[name], choices[name]) for name in model.full}
    order = chain_order(model, choices)
    if order is not None:
        return allocate_chain(model, order, ratio, totals, choices)
    return allocate_by_jumps(model, ratio, totals, choices)


def allocate_by_jumps(model: Cost, ratio: float, errors: Mapping[str, list[float]], choices: Choices) -> dict[str, int]:
    """The better of two plans: cut where a saved second adds least error, and a price per second that fits the budget.

    Both give back neurons that still fit, and exchange some between units.
    """
    budget = model.at({}) / ratio
    plans = []
    for places in (_cut(model, budget, errors, choices), _priced(model, budget, errors, choices)):
        widths = {name: choices[name][place] for name, place in places.items()}
        widths = _widened(model, widths, places, budget, errors, choices)
        widths = exchanged(model, widths, budget, errors, choices)
        error = sum(errors[name][choices[name].index(width)] for name, width in widths.items())
        plans.append((model.at(widths) > budget, error, tuple(widths.items())))
    return dict(min(plans)[2])


def _cut(model: Cost, budget: float, errors: Mapping[str, list[float]], choices: Choices) -> dict[str, int]:
    """Places among the choices, cut step by step, by one or several choices at once."""
    widths = dict(model.full)
    places = {name: len(choices[name]) - 1 for name in widths}
    spent = model.at(widths)

    def cheapest(name: str) -> tuple[float, int]:
        """Error per second saved by the best jump down, and where it leads."""
        jumps = []
        for place in range(max(places[name] - JUMP, 0), places[name]):
            saved = model.saving(name, widths, choices[name][place])
            if saved > 0:
                jumps.append(((errors[name][place] - errors[name][places[name]]) / saved, place))
        return min(jumps, default=(float("inf"), -1))

    heap = [(cheapest(name)[0], name) for name in widths]
    heapq.heapify(heap)
    while spent > budget and heap:
        before, name = heapq.heappop(heap)
        price, place = cheapest(name)
        if place < 0:
            continue
        if heap and price > max(before, heap[0][0]) * (1 + 1e-9):  # its neighbours shrank since: it saves less now
            heapq.heappush(heap, (price, name))
            continue
        spent -= model.saving(name, widths, choices[name][place])
        widths[name], places[name] = choices[name][place], place
        heapq.heappush(heap, (cheapest(name)[0], name))
    return places


def _priced(model: Cost, budget: float, errors: Mapping[str, list[float]], choices: Choices) -> dict[str, int]:
    """Places where no unit alone does better if each second has a price; the lowest price that fits the budget."""
    smallest = {name: 0 for name in model.full}
    low, high = -5.0, 5.0  # powers of ten, relative to all error over all time
    scale = sum(values[0] for values in errors.values()) / model.at({})
    for _ in range(PRICES):
        middle = (low + high) / 2
        places = _settled(model, scale * 10**middle, errors, choices)
        if model.at({name: choices[name][place] for name, place in places.items()}) <= budget:
            high, smallest = middle, places
        else:
            low = middle
    return smallest


def _settled(model: Cost, price: float, errors: Mapping[str, list[float]], choices: Choices) -> dict[str, int]:
    """Units in turn take their best choice, given the others, until none moves."""
    widths = dict(model.full)
    places = {name: len(choices[name]) - 1 for name in widths}
    for _ in range(SWEEPS):
        before = dict(places)
        for name in widths:
            costs = [
                errors[name][place] - price * model.saving(name, widths, width)
                for place, width in enumerate(choices[name])
            ]
            places[name] = costs.index(min(costs))
            widths[name] = choices[name][places[name]]
        if places == before:
            break
    return places


def _widened(
    model: Cost,
    widths: dict[str, int],
    places: dict[str, int],
    budget: float,
    errors: Mapping[str, list[float]],
    choices: Choices,
) -> dict[str, int]:
    """Give neurons back while they fit into the budget, the most useful first."""
    while True:
        room, best = budget - model.at(widths), None
        for name, width in widths.items():
            for place in range(places[name] + 1, min(places[name] + JUMP, len(choices[name]) - 1) + 1):
                added = -model.saving(name, widths, choices[name][place])
                gained = errors[name][places[name]] - errors[name][place]
                worth = gained / max(added, 1e-30)
                if added <= max(room, 0.0) and choices[name][place] > width and (best is None or worth > best[0]):
                    best = (worth, name, place)
        if best is None:
            return widths
        _, name, place = best
        widths[name], places[name] = choices[name][place], place
