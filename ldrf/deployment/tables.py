"""How long a layer takes at any number of inputs and outputs: measured at some, interpolated between them."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from ldrf.deployment.geometry import Geometry, Piece

LINE = 24  # sizes measured along one side, at most
PERIOD = 16  # channels: kernels of runtimes come in blocks of 8 or 16, so a size is compared with those of its kind

Line = dict[int, float]


@dataclass(frozen=True)
class Wanted:
    """A layer whose times are wanted: the sizes that its inputs and outputs can have, ascending."""

    geometry: Geometry
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def points(self) -> list[tuple[int, int]]:
        """The sizes to measure: one side at a time at all of its line, and a coarse grid of both."""
        if self.geometry.group is not None:
            return [(self.grouped_inputs(o), o) for o in sampled(self.outputs)]
        lines = [(i, self.outputs[-1]) for i in sampled(self.inputs)]
        lines += [(self.inputs[-1], o) for o in sampled(self.outputs)]
        return list(dict.fromkeys([*lines, *product(coarse(self.inputs), coarse(self.outputs))]))

    def grouped_inputs(self, outputs: int) -> int:
        """Groups go whole, so inputs follow outputs."""
        own, made = self.geometry.group or (1, 1)
        return own * outputs // made


@dataclass(frozen=True)
class Table:
    """Seconds of one layer by its numbers of inputs and outputs."""

    wanted: Wanted
    seconds: dict[tuple[int, int], float]

    def at(self, inputs: int, outputs: int) -> float:
        """Seconds at any size within the range: what both sides save alone, times what they save together."""
        known = self.seconds.get((inputs, outputs))
        if known is not None:
            return known
        if self.wanted.geometry.group is not None:
            return along({o: t for (_, o), t in self.seconds.items()}, outputs)
        most_in, most_out = self.wanted.inputs[-1], self.wanted.outputs[-1]
        by_inputs = {i: t for (i, o), t in self.seconds.items() if o == most_out}
        by_outputs = {o: t for (i, o), t in self.seconds.items() if i == most_in}
        smooth = self._bilinear(inputs, outputs)
        one = along(by_inputs, inputs) / self._bilinear(inputs, most_out)
        other = along(by_outputs, outputs) / self._bilinear(most_in, outputs)
        return smooth * one * other

    def _bilinear(self, inputs: int, outputs: int) -> float:
        rows = coarse(self.wanted.outputs)
        columns = coarse(self.wanted.inputs)
        line = {i: straight({o: self.seconds[i, o] for o in rows}, outputs) for i in columns}
        return straight(line, inputs)


def sampled(sizes: Sequence[int]) -> tuple[int, ...]:
    """All sizes or, of many, pairs of neighbours spread over their range: what a step of one block saves is seen."""
    if len(sizes) <= LINE:
        return tuple(sizes)
    pairs = LINE // 2
    firsts = [round(k * (len(sizes) - 2) / (pairs - 1)) for k in range(pairs)]
    return tuple(sizes[i] for i in sorted({*firsts, *(first + 1 for first in firsts)}))


def coarse(sizes: Sequence[int]) -> tuple[int, ...]:
    """The smallest, a middle one and the largest of the sizes that are measured."""
    line = sampled(sizes)
    return tuple(sorted({line[0], line[len(line) // 2], line[-1]}))


def along(line: Line, size: int) -> float:
    """The time at a size, between the nearest sizes of its kind, or between the nearest of any."""
    if size in line:
        return line[size]
    alike = {s: t for s, t in line.items() if s % PERIOD == size % PERIOD}
    inside = alike and min(alike) <= size <= max(alike)
    return straight(alike if inside else line, size)


def straight(line: Line, size: int) -> float:
    """Linear between the neighbours; beyond the ends it stays as it is there."""
    sizes = sorted(line)
    place = bisect_left(sizes, size)
    if place == 0 or len(sizes) == 1:
        return line[sizes[0]]
    if place == len(sizes):
        return line[sizes[-1]]
    low, high = sizes[place - 1], sizes[place]
    return line[low] + (line[high] - line[low]) * (size - low) / (high - low)


def elements(piece: Piece) -> int:
    """Numbers that a piece reads and writes, weights included."""
    return math.prod(piece.input_shape) + 2 * math.prod(piece.output_shape) + math.prod(piece.weight_shape)
