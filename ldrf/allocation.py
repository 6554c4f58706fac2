"""How wide each unit is to be: widths inside the ranges (z_l, n_l] that meet a cost target."""

import heapq
import math
from collections.abc import Mapping
from itertools import combinations, product

from torch import Tensor

from ldrf.cost import CostModel
from ldrf.errors import LdrfError

SLACK = 1.02  # how far above its target a plan may end
REACH = 16  # neurons that may change hands between two units to get there
TRIALS = 2_000_000  # exchanges looked at, at most


def reachable(cost: CostModel, floors: Mapping[str, int]) -> float:
    """The largest dense cost / slim cost with every unit at its smallest width."""
    return cost.at({}) / cost.at(floors)


def check_reachable(cost: CostModel, floors: Mapping[str, int], ratio: float, what: str, energy: float) -> None:
    best = reachable(cost, floors)
    if best < ratio:
        hardest = reachable(cost, dict.fromkeys(floors, 1))
        raise LdrfError(
            f"A {what} of {ratio:g} is out of reach: the largest with every unit at its rank (energy {energy:g}) is "
            f"{best:.2f}, and {hardest:.2f} with a single neuron each; ask for less or lower the energy."
        )


def allocate_by_error(
    cost: CostModel, ratio: float, errors: Mapping[str, Tensor], floors: Mapping[str, int]
) -> dict[str, int]:
    """Cut, neuron by neuron, where a saved MAC adds least error (DESIGN: marginal error per MAC).

    ``errors[unit][w]`` is the weighted error of a unit at width w; curves are made convex first so that the
    greedy choice is the best one for separable costs.
    """
    widths = dict(cost.full)
    slopes = {name: convex_slopes(curve) for name, curve in errors.items()}
    budget = cost.at({}) / ratio
    heap = [(_price(cost, slopes, name, widths), name) for name in widths if widths[name] > floors[name]]
    heapq.heapify(heap)
    spent = cost.at(widths)
    while spent > budget and heap:
        price, name = heapq.heappop(heap)
        current = _price(cost, slopes, name, widths)
        if current > price * (1 + 1e-9):  # its neighbours shrank since: the saving is smaller now
            heapq.heappush(heap, (current, name))
            continue
        spent -= cost.saving(name, widths)
        widths[name] -= 1
        if widths[name] > floors[name]:
            heapq.heappush(heap, (_price(cost, slopes, name, widths), name))
    return _trade(cost, _fill(cost, widths, budget, slopes), budget, slopes, floors)


def _price(cost: CostModel, slopes: Mapping[str, list[float]], name: str, widths: Mapping[str, int]) -> float:
    """Error added per unit of cost saved by taking one more neuron from ``name``."""
    return slopes[name][widths[name]] / max(cost.saving(name, widths), 1e-30)


def _fill(cost: CostModel, widths: dict[str, int], budget: float, slopes: Mapping[str, list[float]]) -> dict[str, int]:
    """Give back neurons that still fit under the budget, the most useful first."""
    changed = True
    while changed:
        changed = False
        room = budget - cost.at(widths)
        added = lambda n: cost.saving(n, widths, widths[n] + 1)  # noqa: E731
        fits = [n for n in widths if widths[n] < cost.full[n] and added(n) <= room]
        if fits:
            best = max(fits, key=lambda n: slopes[n][widths[n] + 1] / added(n))
            widths[best] += 1
            changed = True
    return widths


def _trade(
    cost: CostModel,
    widths: dict[str, int],
    budget: float,
    slopes: Mapping[str, list[float]],
    floors: Mapping[str, int],
) -> dict[str, int]:
    """Where neurons are too coarse to spend the budget to within ``SLACK``, exchange a few between two units."""
    reach, pairs, spent = 1, math.comb(len(widths), 2), cost.at(widths)
    while spent < budget / SLACK and reach <= REACH and pairs * (2 * reach + 1) ** 2 <= TRIALS:
        trials = []
        for (a, b), i, j in product(combinations(widths, 2), range(-reach, reach + 1), range(-reach, reach + 1)):
            moved = {a: widths[a] + i, b: widths[b] + j}
            inside = all(floors[n] <= moved[n] <= cost.full[n] for n in (a, b))
            if inside and budget / SLACK <= spent + cost.change(widths, moved) <= budget:
                damage = sum(_damage(slopes[n], widths[n], moved[n]) for n in (a, b))
                trials.append((damage, tuple({**widths, **moved}.items())))
        if trials:
            return dict(min(trials)[1])
        reach *= 2
    return widths


def _damage(slopes: list[float], before: int, after: int) -> float:
    """Error added by going from one width to another; negative when neurons come back."""
    return sum(slopes[after + 1 : before + 1]) - sum(slopes[before + 1 : after + 1])


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


def allocate_by_share(
    cost: CostModel, ratio: float, floors: Mapping[str, int], depth_bias: float = 0.0
) -> dict[str, int]:
    """Widths floor + t (full - floor), the same t everywhere or, with ``depth_bias``, smaller t in shallow units.

    With ranks as floors and a bias this is the paper's rule: inside (z_l, n_l], shallow layers pruned harder.
    """
    names = list(cost.full)
    budget = cost.at({}) / ratio

    def at(level: float) -> dict[str, int]:
        found = {}
        for i, name in enumerate(names):
            depth = i / max(len(names) - 1, 1)
            t = min(1.0, level * (1 - depth_bias + 2 * depth_bias * depth))
            found[name] = int(floors[name] + t * (cost.full[name] - floors[name]))
        return found

    low, high = 0.0, 2.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if cost.at(at(middle)) <= budget else (low, middle)
    widths = at(low)
    flat = {name: [1.0] * (cost.full[name] + 1) for name in names}
    return _trade(cost, _fill(cost, widths, budget, flat), budget, flat, floors)
