"""How far networks with other weights are from the dense one on the held-out images."""

import torch

from ldrf.calibration.network import Network
from ldrf.runtime.device import exact
from ldrf.runtime.processes import sum_over
from ldrf.runtime.randomness import same_random_numbers
from ldrf.tracing.interpreter import Weights
from ldrf.tracing.lean_run import Values, input_values, run_lean

LARGE = 2**24  # values of an output that are compared at once


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
