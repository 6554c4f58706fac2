"""Values at which dense and slim network are compared when all units move together (Eqn. 6).

These are the network's outputs, every sum or map that is as wide as before, and the outputs that a layer gave at its
full width before it was cut itself.
"""

import math
from collections.abc import Collection, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from ldrf.algebra.large_rows import row_factors
from ldrf.calibration.network import Network
from ldrf.config import PruneConfig
from ldrf.inputs import Inputs
from ldrf.reconstruction.problem import BEHIND
from ldrf.runtime.device import exact
from ldrf.runtime.processes import sum_over
from ldrf.runtime.randomness import same_random_numbers
from ldrf.tracing.interpreter import Weights, run
from ldrf.tracing.lean_run import Values, input_values, run_lean
from ldrf.tracing.trace import Layer, Trace
from ldrf.units.grouping import activation_behind

OUTPUT_WEIGHT = 1 / 4  # what the network's outputs count beside values inside it: they are few, and overfit first


def goal_weights(network: Network, points: Collection[str], full_width: Collection[Layer]) -> dict[str, float]:
    """What a squared distance counts at each goal: one over its spread, and less at the network's outputs.

    A layer at full width is compared before the activation that follows it and, for the greater part, behind it.
    """
    shares = {name: OUTPUT_WEIGHT if name in network.trace.outputs else 1.0 for name in points}
    for layer in full_width:
        behind = activation_behind(network.trace, layer.result)
        shares |= {layer.result: 1 - BEHIND, behind: BEHIND} if behind else {layer.result: 1.0}
    return {name: shares[name] / spread for name, spread in goal_spreads(network, shares).items()}


@torch.no_grad()
def meeting_points(network: Network, slim: Weights) -> list[str]:
    """Values of one shape in both networks that differ: those that consumers restore, and the outputs."""
    trace, few = network.trace, network.example.first(2)
    mine, theirs = (run(trace, w, trace.nodes, input_values(trace, few, w.device)) for w in (slim, network.dense))
    goals = [c.activation or c.goal for unit in network.units for c in unit.consumers]
    return [n for n in dict.fromkeys([*goals, *trace.outputs]) if _comparable(mine.get(n), theirs.get(n))]


def _comparable(mine: object, theirs: object) -> bool:
    """Whether two values are floating-point tensors of one shape that differ."""
    if not isinstance(mine, Tensor) or not isinstance(theirs, Tensor) or mine.shape != theirs.shape:
        return False
    return theirs.is_floating_point() and not torch.equal(mine, theirs)


def goal_dims(network: Network) -> dict[str, int]:
    """Dimension that counts the channels of each goal that a consumer restores; the outputs count as they are."""
    consumers = [c for unit in network.units for c in unit.consumers]
    dims = {c.activation or c.goal: c.layer.channel_dim for c in consumers}
    return {name: dim for name, dim in dims.items() if name not in network.trace.outputs}


@torch.no_grad()
def goal_factors(dims: Mapping[str, int], name: str, dense: Tensor) -> Tensor | None:
    """What the rows of a goal are scaled by, where some of its dense values are far larger than the others."""
    return row_factors(dense, dims[name]) if name in dims else None


@torch.no_grad()
def goal_spreads(network: Network, goals: Collection[str]) -> dict[str, float]:
    """The spread of each goal per image in the dense network; goals that do not vary are left out."""
    trace, calibration = network.trace, network.calibration
    first = calibration.fitting[0]
    own = calibration.own([first])
    values = values_at(trace, network.dense, calibration.chunks[first], goals, first) if own else {}
    dims = goal_dims(network)
    own_sums = {n: _sums(values.get(n), dims.get(n)) for n in goals}
    sums = {n: sum_over(s).tolist() for n, s in own_sums.items()}
    spreads = {
        n: (squares - total * total / max(count, 1)) / calibration.sizes[first]
        for n, (count, total, squares) in sums.items()
    }
    return {n: spread for n, spread in spreads.items() if math.isfinite(spread) and spread > 0}


def _sums(value: Tensor | None, dim: int | None) -> Tensor:
    """Number of values, their sum and the sum of their squares; rows along ``dim`` that are far too large come down."""
    if value is None:
        return torch.zeros(3, dtype=torch.float64)
    factors = None if dim is None else row_factors(value, dim)
    value = value if factors is None else value * factors
    count = torch.tensor(value.numel(), dtype=torch.float64)
    return torch.stack([count, exact(value).sum().cpu(), exact(value).square().sum().cpu()])


def values_at(trace: Trace, weights: Weights, inputs: Inputs, names: Collection[str], seed: int) -> Values:
    """The named values of a network; all others are dropped as soon as nothing reads them any more."""
    with same_random_numbers(seed):
        values = run_lean(trace, weights, 0, len(trace.nodes), input_values(trace, inputs, weights.device), names)
    return {name: values[name] for name in names}


class Goals(NamedTuple):
    """Dense values by name, and what the rows of each are scaled by, where some are far larger than the others."""

    values: Values
    factors: dict[str, Tensor | None]


class DenseValues:
    """Values of the dense network at the goals, kept from pass to pass if images are fixed and all fits in memory."""

    def __init__(self, network: Network, goals: Collection[str], config: PruneConfig, fixed: bool) -> None:
        self.network, self.goals, self.dims = network, goals, goal_dims(network)
        self.known: dict[tuple[int, int], Goals] = {}
        few = network.example.first(1)
        size = sum(v.numel() * v.element_size() for v in self._run(few, 0).values.values()) // few.rows
        images = sum(network.calibration.chunks[chunk].rows for chunk in network.calibration.fitting)
        self.fit = fixed and 2 * size * images <= network.room(config)

    def __call__(self, chunk: int, piece: int, inputs: Inputs) -> Goals:
        """The values for one piece of a chunk."""
        goals = self.known.get((chunk, piece)) or self._run(inputs, chunk)
        if self.fit:
            self.known[chunk, piece] = goals
        return goals

    @torch.no_grad()
    def _run(self, inputs: Inputs, seed: int) -> Goals:
        values = values_at(self.network.trace, self.network.dense, inputs, self.goals, seed)
        return Goals(values, {name: goal_factors(self.dims, name, value) for name, value in values.items()})
