"""Which widths a unit may get: whole blocks of channels, as the kernels of a runtime compute them."""

import math
from collections.abc import Mapping
from itertools import groupby

from ldrf.units.unit import Unit

STEPS = 4  # a unit has at least so many choices: one that is too narrow for that moves in smaller steps
BLOCK = 8  # channels that make a whole block, or half of one in kernels of AVX-512
SMALLEST = 4  # channels that runtimes compute at once, at least: smaller steps than that gain nothing but choice

Choices = Mapping[str, tuple[int, ...]]  # unit -> its widths to choose from, ascending; the last is its full width


def width_step(unit: Unit, multiple: int) -> int:
    """Neurons by which the unit's width moves, so that the outputs of its producer come in multiples.

    Steps of a narrow unit are halved, down to one where four channels are too many, until it has at least four of
    them: with multiples of 16 it is 16 from a width of 64 on, 8 from 32 on, 4 from 16 on.
    """
    step = _whole_step(unit, multiple)
    while step > 1 and unit.width < STEPS * step:
        step = step // 2 if step > SMALLEST else 1
    return step


def _whole_step(unit: Unit, multiple: int) -> int:
    """Neurons that bring a multiple of outputs; fewer of them where each is a head or group of several outputs."""
    block = min(len(list(run)) for _, run in groupby(unit.neuron_of_output.tolist()))
    return multiple // math.gcd(multiple, block)


def width_choices(unit: Unit, floor: int, multiple: int) -> tuple[int, ...]:
    """The unit's widths from ``floor`` up, ascending: multiples of its step, and always the full width."""
    step = width_step(unit, multiple)
    first = -(-max(floor, 1) // step) * step
    return (*range(first, unit.width, step), unit.width)


def nearest_choice(choices: tuple[int, ...], width: float) -> int:
    """The choice nearest to ``width``, the larger of two that are as near."""
    return min(choices, key=lambda choice: (abs(choice - width), -choice))


def odd_widths(units: tuple[Unit, ...], widths: Mapping[str, int], multiple: int) -> dict[str, int]:
    """Those of the widths that fill no whole blocks, with the nearest that does; narrow units may have any width."""
    odd = {}
    for unit in units:
        width, choices = widths.get(unit.name, unit.width), width_choices(unit, 1, multiple)
        wide = width_step(unit, multiple) >= min(_whole_step(unit, multiple), BLOCK)
        if wide and width not in choices:
            odd[unit.name] = nearest_choice(choices, width)
    return odd
