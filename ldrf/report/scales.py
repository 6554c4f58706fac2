"""Where a number lies on an axis, and which numbers are written beside it."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

Ticks = list[tuple[float, str]]  # place from 0 to 1, and what is written there


@dataclass(frozen=True)
class LogScale:
    """Whole powers of ten, from 10^low to 10^high."""

    low: int
    high: int

    @classmethod
    def around(cls, values: Iterable[float], most: int = 4) -> "LogScale":
        """The decades that hold ``values``, at most ``most`` of them, counted from the top."""
        positive = [v for v in values if v > 0] or [1.0]
        high = math.ceil(math.log10(max(positive)))
        low = min(math.floor(math.log10(min(positive))), high - 1)
        return cls(max(low, high - most), high)

    def place(self, value: float) -> float:
        """Where ``value`` lies, from 0 to 1; what is below the scale lies on its edge."""
        if value <= 0:
            return 0.0
        return min(max((math.log10(value) - self.low) / (self.high - self.low), 0.0), 1.0)

    @property
    def ticks(self) -> Ticks:
        return [(self.place(10.0**d), _power_of_ten(d)) for d in range(self.low, self.high + 1)]


@dataclass(frozen=True)
class LinearScale:
    """Round numbers a step of 1, 2 or 5 apart."""

    marks: tuple[float, ...]

    @classmethod
    def around(cls, values: Iterable[float], count: int = 5) -> "LinearScale":
        """About ``count`` steps that enclose ``values``."""
        known = list(values)
        low, high = min(known), max(known)
        raw = max(high - low, 1e-6 * max(abs(high), 1.0)) / count
        unit = 10.0 ** math.floor(math.log10(raw))
        step = next(m * unit for m in (1, 2, 5, 10) if m * unit >= raw * (1 - 1e-9))
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        return cls(tuple(round(i * step, 12) for i in range(first, max(last, first + 1) + 1)))

    def place(self, value: float) -> float:
        return (value - self.marks[0]) / (self.marks[-1] - self.marks[0])

    @property
    def ticks(self) -> Ticks:
        digits = max(0, -math.floor(math.log10(self.marks[1] - self.marks[0]) + 1e-9))
        return [(self.place(mark), f"{mark:.{digits}f}") for mark in self.marks]


def _power_of_ten(exponent: int) -> str:
    if -3 <= exponent <= 3:
        return f"{10.0**exponent:g}"
    return "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def anchor(place: float) -> str:
    """How to set a word at this place of an axis, so that it does not stick out at either end."""
    return "start" if place < 0.1 else "end" if place > 0.9 else "middle"


def thinned(count: int, points: int) -> list[int]:
    """At most ``points`` of the indices below ``count``, first and last among them, closer at the start."""
    if count <= points:
        return list(range(count))
    return sorted({round((count - 1) * (i / (points - 1)) ** 1.5) for i in range(points)})
