"""The promise: on held-out images the slim network is no further from the dense one than plain cutting would be.

Each unit is judged by the outputs of its own consumers. Whether all units together serve the network's outputs is
another question, and the whole network is judged by it here.
"""

import math
import warnings
from dataclasses import dataclass
from typing import Literal

import torch

from ldrf.calibration.network import Network
from ldrf.errors import LdrfWarning
from ldrf.reconstruction.lockstep import Lockstep
from ldrf.runtime.device import exact
from ldrf.runtime.processes import sum_over
from ldrf.runtime.randomness import same_random_numbers
from ldrf.tracing.interpreter import Weights
from ldrf.tracing.lean_run import Values, input_values, run_lean
from ldrf.units.branches import without
from ldrf.units.indices import Kept, cut_weights

LARGE = 2**24  # values of an output that are compared at once


@dataclass(frozen=True)
class HeldOut:
    """Squared error of the outputs on held-out images, relative to their power: cut plainly, and reconstructed.

    All of these networks have the same neurons; ``returned`` says which is handed out. ``reconstructed`` is the better
    of the solution unit by unit and that of all units together, which starts from it.
    """

    cut: float
    unit_by_unit: float
    reconstructed: float
    returned: Literal["reconstructed", "cut"]


@dataclass(frozen=True)
class Chosen:
    """The weights to recompose, the layers among them that are not just cut, and how they were judged."""

    weights: Weights
    changed: set[str]
    held_out: HeldOut | None


def choose(network: Network, walk: Lockstep, kept: Kept, judged: bool, together: Weights | None = None) -> Chosen:
    """The weights nearest to the dense network: solved unit by unit, solved ``together``, or plainly cut.

    A rival method is not ``judged``: its own weights are kept.
    """
    if not judged or not walk.diverged:
        return Chosen(walk.slim, walk.changed, None)
    gone = [branch for branch in network.branches if branch.end in walk.slim.constants]
    dense, moved = without(network.dense, gone), together or walk.slim
    plain = cut_weights(network.trace, network.units, dense, kept)
    cut, alone, *more = held_out_errors(network, (plain, walk.slim, *([together] if together else [])))
    error = more[0] if more else alone
    if not error < alone:
        moved, error = walk.slim, alone
    if math.isfinite(error) and not error > cut:
        return Chosen(moved, walk.changed, HeldOut(cut, alone, error, "reconstructed"))
    warnings.warn(
        f"On the held-out images plain cutting does better than reconstruction (error {cut:.3g} against {error:.3g}), "
        "so the plainly cut network is returned: more calibration images may help.",
        LdrfWarning,
        stacklevel=3,
    )
    return Chosen(plain, set(), HeldOut(cut, alone, error, "cut"))


@torch.no_grad()
def held_out_errors(network: Network, candidates: tuple[Weights, ...]) -> list[float]:
    """Squared error of all outputs of each candidate on held-out images, relative to the power of the dense ones."""
    trace, calibration = network.trace, network.calibration
    names = [name for name in trace.outputs if name in {node.name for node in trace.nodes}]
    sums = torch.zeros(len(candidates) + 1, len(names), dtype=torch.float64)  # squared errors, and the power last
    for index in calibration.own(sorted(calibration.held_out)):

        def outputs(weights: Weights, chunk: int = index) -> Values:
            with same_random_numbers(chunk):
                given = input_values(trace, calibration.chunks[chunk], weights.device)
                return run_lean(trace, weights, 0, len(trace.nodes), given)

        wanted = outputs(network.dense)
        for number, weights in enumerate(candidates):
            mine = outputs(weights)
            sums[number] += torch.stack([_squares(mine[name], wanted[name]) for name in names])
        sums[-1] += torch.stack([_squares(wanted[name], None) for name in names])
    sums = sum_over(sums)
    return (sums[:-1] / sums[-1].clamp_min(1e-300)).sum(1).tolist()


def _squares(value: object, other: object) -> torch.Tensor:
    """Sum of squares of a floating-point output, or of its difference from another; 0 of anything else."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return torch.zeros((), dtype=torch.float64)
    if value.numel() > LARGE and len(value) > 1:  # copies in float64 of large outputs would fill the memory
        others = other if isinstance(other, torch.Tensor) else [other] * len(value)
        return torch.stack([_squares(one, two) for one, two in zip(value, others, strict=True)]).sum()
    gap = exact(value) - exact(other) if isinstance(other, torch.Tensor) else exact(value)
    return (gap[torch.isfinite(gap)].square().sum() if other is None else gap.square().sum()).cpu()
