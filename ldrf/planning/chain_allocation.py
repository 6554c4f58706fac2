"""The best widths for a budget where every cost depends on two neighbours at most: a dynamic programme, exact but for
rounding.

Units then lie on chains: a layer's time depends on the unit it reads and the unit it makes. Going along the chains,
for each width of the last unit and each amount spent the least error so far is kept.
"""

from collections.abc import Mapping

import numpy as np

from ldrf.planning.latency_model import LatencyModel
from ldrf.units.width_choices import Choices

BINS = 1500  # amounts that are told apart
WORK = 300_000  # pairs of widths looked at, at most

Errors = Mapping[str, list[float]]  # by unit the error at each of its choices


def chain_order(model: LatencyModel, choices: Choices) -> list[str] | None:
    """The units in an order in which only neighbours share a layer; None where there is none."""
    near: dict[str, set[str]] = {name: set() for name in model.full}
    for layer in model.layers:
        if len(layer.units) > 2:
            return None
        for unit in layer.units:
            near[unit] |= set(layer.units) - {unit}
    order: list[str] = []
    for start in sorted(near, key=lambda name: len(near[name])):  # ends of chains come first
        if start in order:
            continue
        before, here = None, start
        while here is not None:
            order.append(here)
            following = near[here] - {before}
            if len(following) > 1 or following & set(order):
                return None
            before, here = here, next(iter(following), None)
    pairs = sum(len(choices[a]) * len(choices[b]) for a in near for b in near[a]) // 2
    return order if pairs <= WORK else None


def allocate_chain(
    model: LatencyModel, order: list[str], ratio: float, errors: Errors, choices: Choices
) -> dict[str, int]:
    """Widths of the least error whose cost is that of the dense network / ``ratio`` at most."""
    stays = model.fixed + sum(layer.at(model.full) for layer in model.untouched)
    unit = (model.at({}) / ratio - stays) / BINS
    smallest = {name: choices[name][0] for name in model.full}
    if unit <= 0:
        return smallest
    table = np.zeros((1, BINS + 1))
    steps: list[tuple[np.ndarray, np.ndarray]] = []  # what each unit costs, and the width before it
    for place, name in enumerate(order):
        before = order[place - 1] if place else None
        costs = _costs(model, before, name, choices, unit)  # [widths before or 1, widths]
        table, chosen = _step(table, costs, np.array(errors[name]), before is not None)
        steps.append((costs, chosen))
    return smallest | _read_back(table, steps, order, choices)


def _costs(model: LatencyModel, before: str | None, name: str, choices: Choices, unit: float) -> np.ndarray:
    """What the layers of ``name`` cost that have all their units by now, in bins, for each pair of widths."""
    linked = [la for la in model.layers_of.get(name, ()) if before is not None and set(la.units) == {before, name}]
    alone = [la for la in model.layers_of.get(name, ()) if la.units == (name,)]
    own = np.array([sum(la.at({name: w}) for la in alone) for w in choices[name]])
    if before is None or not linked:
        return np.rint(own[None] / unit).astype(int)
    pairs = [[sum(la.at({before: v, name: w}) for la in linked) for w in choices[name]] for v in choices[before]]
    return np.rint((np.array(pairs) + own[None]) / unit).astype(int)


def _step(table: np.ndarray, costs: np.ndarray, errors: np.ndarray, has_before: bool) -> tuple[np.ndarray, np.ndarray]:
    """The least error [widths, spent] with one more unit, and which width of the unit before led there."""
    count, bins = len(errors), table.shape[1]
    fewest = table.argmin(0)  # where nothing links the two, the unit before is the best there is
    if len(costs) == 1 and has_before:
        table, lookup = table.min(0, keepdims=True), fewest
    else:
        lookup = None
    least, chosen = np.full((count, bins), np.inf), np.zeros((count, bins), dtype=np.int32)
    for i, row in enumerate(costs):
        for j, cost in enumerate(row):
            if cost >= bins:
                continue
            reached = table[i, : bins - cost]
            better = reached < least[j, cost:]
            least[j, cost:][better] = reached[better]
            chosen[j, cost:][better] = i if lookup is None else lookup[: bins - cost][better]
    return least + errors[:, None], chosen


def _read_back(
    table: np.ndarray, steps: list[tuple[np.ndarray, np.ndarray]], order: list[str], choices: Choices
) -> dict[str, int]:
    """The widths that led to the least error; none where nothing fits."""
    place, spent = np.unravel_index(int(np.argmin(table)), table.shape)
    widths: dict[str, int] = {}
    if not np.isfinite(table[place, spent]):
        return widths
    for name, (costs, chosen) in zip(reversed(order), reversed(steps), strict=True):
        widths[name] = choices[name][place]
        before = chosen[place, spent]
        spent -= costs[before if len(costs) > 1 else 0, place]
        place = before
    return widths
