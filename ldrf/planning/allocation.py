"""How wide each unit is to be: widths inside the ranges (z_l, n_l] that meet a cost target."""

import heapq
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate, combinations, pairwise, product

from torch import Tensor

from ldrf.errors import OutOfReach
from ldrf.planning.cost_model import Cost
from ldrf.planning.exchange import exchanged
from ldrf.units.width_choices import Choices

SLACK = 1.02  # how far above its target a plan may end
REACH = 16  # steps that may change hands between two units to get there
TRIALS = 2_000_000  # exchanges looked at, at most


def reachable(cost: Cost, choices: Choices) -> float:
    """The largest dense cost / slim cost with every unit at its smallest width."""
    return cost.at({}) / cost.at({name: widths[0] for name, widths in choices.items()})


def check_reachable(cost: Cost, choices: Choices, ratio: float, what: str, energy: float) -> None:
    best = reachable(cost, choices)
    if best < ratio:
        hardest = cost.at({}) / cost.at(dict.fromkeys(choices, 1))
        raise OutOfReach(
            f"A {what} of {ratio:g} is out of reach: the largest with every unit at its rank (energy {energy:g}) is "
            f"{best:.2f}, and {hardest:.2f} with a single neuron each; ask for less, lower the energy, or set "
            "multiple=1 to allow any width."
        )


def allocate_by_error(cost: Cost, ratio: float, errors: Mapping[str, Tensor], choices: Choices) -> dict[str, int]:
    """Cut, step by step, where a saved MAC adds least error (DESIGN: marginal error per MAC).

    ``errors[unit][w]`` is the weighted error of a unit at width w; curves are made convex first so that the
    greedy choice is the best one for separable costs. ``choices`` are the widths that each unit may have.
    """
    steps = {name: step_errors(errors[name], choices[name]) for name in cost.full}
    budget = cost.at({}) / ratio
    places = {name: len(choices[name]) - 1 for name in cost.full}
    widths = dict(cost.full)

    def price(name: str) -> float:
        """Error added per unit of cost saved by the next step down."""
        lower = choices[name][places[name] - 1]
        return steps[name][places[name]] / max(cost.saving(name, widths, lower), 1e-30)

    heap = [(price(name), name) for name in widths if places[name]]
    heapq.heapify(heap)
    spent = cost.at(widths)
    while spent > budget and heap:
        before, name = heapq.heappop(heap)
        now = price(name)
        if now > before * (1 + 1e-9):  # its neighbours shrank since: the saving is smaller now
            heapq.heappush(heap, (now, name))
            continue
        places[name] -= 1
        lower = choices[name][places[name]]
        spent -= cost.saving(name, widths, lower)
        widths[name] = lower
        if places[name]:
            heapq.heappush(heap, (price(name), name))
    totals = {name: total_errors(errors[name], choices[name]) for name in cost.full}
    widths = exchanged(cost, _fill(cost, widths, budget, steps, choices), budget, totals, choices)
    return _trade(cost, _fill(cost, widths, budget, steps, choices), budget, steps, choices)


def step_errors(curve: Tensor, choices: Sequence[int]) -> list[float]:
    """Error added by going from each choice to the one before it, on the lower convex hull of the curve; 0 first."""
    slopes = convex_slopes(curve)
    return [0.0, *(sum(slopes[low + 1 : high + 1]) for low, high in pairwise(choices))]


def total_errors(curve: Tensor, choices: Sequence[int]) -> list[float]:
    """A unit's error at each of its choices, on the convex hull of its curve; none at full width."""
    steps = step_errors(curve, choices)
    return [*reversed([0.0, *accumulate(reversed(steps[1:]))])]


def _fill(
    cost: Cost, widths: dict[str, int], budget: float, steps: Mapping[str, list[float]], choices: Choices
) -> dict[str, int]:
    """Give back steps that still fit under the budget, the most useful first."""
    while True:
        room, fitting = budget - cost.at(widths), []
        for name, width in widths.items():
            if width < cost.full[name]:
                place = choices[name].index(width) + 1
                added = -cost.saving(name, widths, choices[name][place])
                if added <= room:
                    fitting.append((steps[name][place] / max(added, 1e-30), name, choices[name][place]))
        if not fitting:
            return widths
        _, name, wider = max(fitting, key=lambda step: step[0])
        widths[name] = wider


def _trade(
    cost: Cost, widths: dict[str, int], budget: float, steps: Mapping[str, list[float]], choices: Choices
) -> dict[str, int]:
    """Where steps are too coarse to spend the budget to within ``SLACK``, exchange a few between two units."""
    reach, pairs, spent = 1, math.comb(len(widths), 2), cost.at(widths)
    places = {name: choices[name].index(width) for name, width in widths.items()}
    while spent < budget / SLACK and reach <= REACH and pairs * (2 * reach + 1) ** 2 <= TRIALS:
        trials = []
        for (a, b), i, j in product(combinations(widths, 2), range(-reach, reach + 1), range(-reach, reach + 1)):
            moved = {a: places[a] + i, b: places[b] + j}
            if not all(0 <= place < len(choices[name]) for name, place in moved.items()):
                continue
            wide = {name: choices[name][place] for name, place in moved.items()}
            if budget / SLACK <= spent + cost.change(widths, wide) <= budget:
                damage = sum(_damage(steps[name], places[name], place) for name, place in moved.items())
                trials.append((damage, tuple({**widths, **wide}.items())))
        if trials:
            return dict(min(trials)[1])
        reach *= 2
    return widths


def _damage(steps: list[float], before: int, after: int) -> float:
    """Error added by going from one choice to another; negative when neurons come back."""
    return sum(steps[after + 1 : before + 1]) - sum(steps[before + 1 : after + 1])


def convex_slopes(curve: Tensor) -> list[float]:
    """Error added by going from w to w - 1 neurons, after replacing the curve by its lower convex hull."""
    values = [float(v) for v in curve]
    n = len(values) - 1
    hull = [n]
    for w in range(n - 1, -1, -1):
        while len(hull) > 1:
            a, b = hull[-2], hull[-1]
            if (values[b] - values[a]) * (a - w) >= (values[w] - values[a]) * (a - b):
                hull.pop()
            else:
                break
        hull.append(w)
    slopes = [0.0] * (n + 1)
    for a, b in zip(hull, hull[1:], strict=False):
        for w in range(b + 1, a + 1):
            slopes[w] = max((values[b] - values[a]) / (a - b), 0.0)
    return slopes


def allocate_by_share(cost: Cost, ratio: float, choices: Choices, depth_bias: float = 0.0) -> dict[str, int]:
    """Widths floor + t (full - floor), the same t everywhere or, with ``depth_bias``, smaller t in shallow units.

    Each is rounded down to a choice of its unit; floors are the smallest of these.

    With ranks as floors and a bias this is the paper's rule: inside (z_l, n_l], shallow layers pruned harder.
    """
    names = list(cost.full)
    budget = cost.at({}) / ratio

    def at(level: float) -> dict[str, int]:
        widths = {}
        for i, name in enumerate(names):
            depth = i / max(len(names) - 1, 1)
            t = min(1.0, level * (1 - depth_bias + 2 * depth_bias * depth))
            floor = choices[name][0]
            wanted = int(floor + t * (cost.full[name] - floor))
            widths[name] = choices[name][bisect_right(choices[name], wanted) - 1]
        return widths

    low, high = 0.0, 2.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if cost.at(at(middle)) <= budget else (low, middle)
    widths = at(low)
    flat = {name: [0.0, *(float(high - low) for low, high in pairwise(choices[name]))] for name in names}
    return _trade(cost, _fill(cost, widths, budget, flat, choices), budget, flat, choices)
