"""Neurons that change hands between two units, where that lowers the estimated error within the budget."""

from collections.abc import Mapping
from itertools import permutations, product

from ldrf.planning.cost_model import Cost
from ldrf.units.width_choices import Choices

EXCHANGE = 4  # choices that may change hands between two units
SWEEPS = 8  # times that all pairs of units are looked at, at most
TRIALS = 300_000  # exchanges looked at per sweep, at most: with many units fewer choices change hands at once


def exchanged(
    cost: Cost, widths: Mapping[str, int], budget: float, errors: Mapping[str, list[float]], choices: Choices
) -> dict[str, int]:
    """Let one unit have neurons for which another gives some up, while that lowers the error within the budget.

    ``errors`` are those of each unit at each of its ``choices``.
    """
    widths = dict(widths)
    places = {name: choices[name].index(width) for name, width in widths.items()}
    pairs, spent = len(widths) * (len(widths) - 1), cost.at(widths)
    reach = min(EXCHANGE, int((TRIALS / max(pairs, 1)) ** 0.5))
    for _ in range(SWEEPS):
        better = False
        for wider, narrower in permutations(widths, 2):
            best = (0.0, 0.0, places[wider], places[narrower])
            for up, down in product(range(1, reach + 1), repeat=2):
                high, low = places[wider] + up, places[narrower] - down
                if high >= len(choices[wider]) or low < 0:
                    continue
                gained = errors[wider][places[wider]] - errors[wider][high]
                gained -= errors[narrower][low] - errors[narrower][places[narrower]]
                if gained <= best[0]:
                    continue
                added = cost.change(widths, {wider: choices[wider][high], narrower: choices[narrower][low]})
                if spent + added <= budget:
                    best = (gained, added, high, low)
            if best[0] > 0:
                better, spent = True, spent + best[1]
                for name, place in ((wider, best[2]), (narrower, best[3])):
                    widths[name], places[name] = choices[name][place], place
        if not better:
            break
    return widths
