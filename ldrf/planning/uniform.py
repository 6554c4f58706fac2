"""One width for the same layer of every block, so that a config with one number for all of them can say it."""

import re
from collections.abc import Mapping

from torch import Tensor

from ldrf.planning.allocation import step_errors
from ldrf.planning.cost_model import Cost
from ldrf.units.width_choices import Choices


def kinds_of(full: Mapping[str, int]) -> dict[str, list[str]]:
    """Units that are to have one width: their names differ in numbers alone, and their full widths do not."""
    kinds: dict[str, list[str]] = {}
    for name, width in full.items():
        kinds.setdefault(f"{re.sub(r'[0-9]+', '*', name)} of {width}", []).append(name)
    return kinds


def tied_choices(choices: Choices, full: Mapping[str, int]) -> Choices:
    """The widths that all units of a kind may have, as the choices of each."""
    tied: dict[str, tuple[int, ...]] = {}
    for names in kinds_of(full).values():
        common = tuple(sorted(set.intersection(*(set(choices[name]) for name in names))))
        tied |= dict.fromkeys(names, common)
    return tied


def allocate_uniformly(cost: Cost, ratio: float, errors: Mapping[str, Tensor], tied: Choices) -> dict[str, int]:
    """Narrow one kind after the other, by a step where a saved MAC adds least error to all of its units."""
    kinds, budget, widths = kinds_of(cost.full), cost.at({}) / ratio, dict(cost.full)
    steps = {name: step_errors(errors[name], tied[name]) for name in widths}
    places = {kind: len(tied[names[0]]) - 1 for kind, names in kinds.items()}

    def lower(kind: str) -> dict[str, int]:
        return {**widths, **{name: tied[name][places[kind] - 1] for name in kinds[kind]}}

    def price(kind: str) -> float:
        damage = sum(steps[name][places[kind]] for name in kinds[kind])
        return damage / max(cost.at(widths) - cost.at(lower(kind)), 1e-30)

    while cost.at(widths) > budget:
        open_kinds = [kind for kind in kinds if places[kind]]
        if not open_kinds:
            break
        cheapest = min(open_kinds, key=price)
        widths = lower(cheapest)
        places[cheapest] -= 1
    return widths
