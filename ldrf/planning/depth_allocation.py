"""Widths for a budget where whole residual branches may go: each costs its own error once, whatever its units cost."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from ldrf.planning.cost_model import Cost
from ldrf.units.width_choices import Choices

LOOK = 2  # branches that are tried at a time, those first that cost least error for what they save

# (cost, ratio, error curves, choices) -> widths
Allocate = Callable[[Any, float, Mapping[str, Tensor], Choices], dict[str, int]]


class HasUnits(Protocol):
    @property
    def units(self) -> tuple[str, ...]: ...


@dataclass(frozen=True)
class PricedBranch:
    """A branch's units, and the error of the network's outputs if the branch is left out."""

    units: tuple[str, ...]
    error: float


@dataclass(frozen=True)
class _Plan:
    gone: frozenset[PricedBranch]
    widths: dict[str, int]
    over: float  # how far the smallest widths are above the budget; an allocation itself may round
    error: float


def with_zeros(choices: Choices, branches: Iterable[HasUnits]) -> Choices:
    """The choices with a width of 0 for all units of the branches, which leaves these out."""
    inside = {unit for branch in branches for unit in branch.units}
    return {name: (0, *widths) if name in inside else widths for name, widths in choices.items()}


def allocate_with_depth(
    allocate: Allocate,
    cost: Cost,
    ratio: float,
    curves: Mapping[str, Tensor],
    choices: Choices,
    branches: tuple[PricedBranch, ...],
) -> dict[str, int]:
    """The widths that ``allocate`` finds, with a branch left out (width 0) as long as that lowers the error.

    One branch after the other goes, and the rest is allocated anew each time. At last each may come back.
    """
    if not branches:
        return allocate(cost, ratio, curves, choices)
    budget = cost.at({}) / ratio

    def planned(gone: frozenset[PricedBranch]) -> _Plan:
        units = {unit for branch in gone for unit in branch.units}
        rest = cost.without(units)
        whole = rest.at({})
        widths = allocate(rest, whole / budget, curves, choices) if whole > budget else dict(rest.full)
        error = sum(float(curves[name][width]) for name, width in widths.items()) + sum(b.error for b in gone)
        least = rest.at({name: choices[name][0] for name in rest.full})
        return _Plan(gone, {name: widths.get(name, 0) for name in cost.full}, max(least - budget, 0.0), error)

    best = planned(frozenset())
    while True:
        paid = sum(branch.error for branch in best.gone)
        hopeful = [b for b in _cheapest(cost, best, curves, branches) if paid + b.error < best.error or best.over]
        trials = [planned(best.gone | {branch}) for branch in hopeful]
        better = min(trials, key=_rank, default=best)
        if _rank(better) >= _rank(best):
            break
        best = better
    for branch in [b for b in branches if b in best.gone and len(best.gone) > 1]:
        best = min(best, planned(best.gone - {branch}), key=_rank)
    return best.widths


def _rank(plan: _Plan) -> tuple[float, float]:
    """Plans that can fit into the budget come first, those of the least error before others."""
    return plan.over, plan.error


def _cheapest(
    cost: Cost, plan: _Plan, curves: Mapping[str, Tensor], branches: tuple[PricedBranch, ...]
) -> list[PricedBranch]:
    """Branches that are still there and of which a saved second, or MAC, adds least error."""

    def price(branch: PricedBranch) -> float:
        spared = sum(float(curves[name][plan.widths[name]]) for name in branch.units)
        saved = -cost.change(plan.widths, dict.fromkeys(branch.units, 0))
        added = branch.error - spared
        return added / saved if saved > 0 else float("inf")

    units = {unit for branch in plan.gone for unit in branch.units}
    there = [branch for branch in branches if not units.intersection(branch.units)]
    return sorted(there, key=price)[:LOOK]
