"""In which coordinates a unit's outputs are compared with the dense ones (the norm of Eqn. 6).

A metric is a weight per output [o], or a matrix [z, o] to the z coordinates of an embedding. Eqn. 6 compares in the
normalised embedding of the layer that reads; the default weighs each output by its effect on the network's outputs.
"""

import torch
from torch import Tensor

from ldrf.algebra.decomposition import Decomposition, decompose, decompose_with_data, normalise_embedding, rank_at
from ldrf.algebra.moments import Moments
from ldrf.calibration.calibration_set import Calibration
from ldrf.calibration.network import Network
from ldrf.calibration.survey import Survey
from ldrf.config import PruneConfig
from ldrf.runtime.device import exact
from ldrf.runtime.processes import sum_all
from ldrf.tracing.interpreter import run
from ldrf.tracing.lean_run import input_values
from ldrf.tracing.patches import output_rows
from ldrf.units.unit import Consumer

EXAMPLES = 256  # images the gradients are taken on
ROWS = 16_384  # or fewer, once there are so many rows of every output: a text has hundreds
FLOOR = 0.3  # share of the weight that every output has alike
ENERGY = 0.9  # share of the singular values an embedding keeps


def measured(value: Tensor, metric: Tensor, dim: int) -> Tensor:
    """Outputs, or a difference of outputs, whose channels stand in ``dim``, in the coordinates of ``metric``."""
    moved = value.movedim(dim, -1)
    return moved * metric if metric.ndim == 1 else moved.to(metric.dtype) @ metric.T


def distance(value: Tensor, goal: Tensor, metric: Tensor, dim: int, factors: Tensor | None = None) -> Tensor:
    """Squared distance of two outputs in the coordinates of ``metric``, summed in one call, as maps are large.

    Rows count with the square of their ``factors``, where these are given.
    """
    gap = value - goal
    return measured(gap if factors is None else gap * factors, metric, dim).square().sum()


def unit_metrics(network: Network, surveys: dict[str, Survey], config: PruneConfig) -> dict[str, Tensor]:
    """The configured metric of every unit's consumers, by the node whose value they aim at."""
    readers = {c.goal: (c, m) for u in network.units for c, m in zip(u.consumers, surveys[u.name].moments, strict=True)}
    if config.metric == "output":
        return {goal: torch.ones(c.layer.outputs) for goal, (c, _) in readers.items()}
    if config.metric == "gradient":
        return gradient_metrics(network, {goal: c for goal, (c, _) in readers.items()})
    with_data = config.metric == "embedding-data"
    return {goal: embedding_metric(network, c, m, with_data) for goal, (c, m) in readers.items()}


def embedding_metric(network: Network, consumer: Consumer, inputs: Moments, with_data: bool) -> Tensor:
    """Coordinates [z, o] of the consumer's embedding at mean 0 and variance 1 (Eqn. 4-5, supplement "SVD").

    W = Q R with z < o: an output y has the embedding y R^+, up to a constant that differences do not see.
    """
    weight, bias = network.dense.layer(consumer.layer.node)
    inputs = inputs.to(weight.device)

    def split(rank: int | None) -> Decomposition:
        return decompose_with_data(weight, bias, inputs, rank) if with_data else decompose(weight, bias, rank)

    parts = split(rank_at(split(None).spectrum, ENERGY))
    d = len(inputs.gram) - 1
    mean = inputs.gram[:d, d] / inputs.rows
    covariance = inputs.gram[:d, :d] / inputs.rows - torch.outer(mean, mean)
    variance = (parts.embedding * (covariance @ parts.embedding)).sum(0)
    normalised = normalise_embedding(parts, mean @ parts.embedding, variance)
    return torch.linalg.pinv(normalised.transformation).T.float().cpu()


def gradient_metrics(network: Network, goals: dict[str, Consumer]) -> dict[str, Tensor]:
    """How much each output of the consumers matters to the network's outputs, label-free [o].

    The root of the mean squared gradient of a random mixture of the outputs, blended with a share alike for all.
    """
    sums: dict[str, Tensor] = {}
    calibration, images = network.calibration, 0
    least = min((c.layer.calls for c in goals.values()), default=1)  # rows per image
    for index in calibration.fitting:
        gradients = _goal_gradients(network, index, sorted(goals)) if calibration.own([index]) else {}
        for name, gradient in gradients.items():
            squares = exact(output_rows(goals[name].layer, gradient, None)).square().sum(0).cpu()
            sums[name] = sums.get(name, torch.zeros_like(squares)) + squares
        images += calibration.sizes[index]
        if images >= EXAMPLES or images * least >= ROWS:
            break
    sums = sum_all(sums)
    return {name: _blended(sums.get(name), consumer.layer.outputs).sqrt() for name, consumer in goals.items()}


def _blended(squares: Tensor | None, outputs: int) -> Tensor:
    """Squared gradients [o] at a mean of 1, every output with its ``FLOOR``; ones where there are no gradients."""
    if squares is None or not float(squares.sum()) > 0:
        return torch.ones(outputs)
    return (FLOOR + (1 - FLOOR) * squares / squares.mean()).float()


def _goal_gradients(network: Network, chunk: int, goals: list[str]) -> dict[str, Tensor]:
    """Gradient of a random mixture of the outputs of a chunk with respect to each goal's value."""
    trace, generator = network.trace, torch.Generator().manual_seed(chunk)
    values = input_values(trace, network.calibration.chunks[chunk], network.dense.device)
    watched: dict[str, Tensor] = {}
    with torch.enable_grad():
        last = trace.last_uses
        for position, node in enumerate(trace.nodes):
            run(trace, network.dense, (node,), values)
            value = values.get(node.name)
            if node.name in goals and isinstance(value, Tensor):
                # A leaf's own gradient is wanted even where nothing before it asks for one.
                values[node.name] = watched[node.name] = value if value.requires_grad else value.requires_grad_()
            for name in last.get(position, ()):  # what the backward pass needs, it keeps itself
                values.pop(name, None)
        outputs = [values[n] for n in trace.outputs if isinstance(values.get(n), Tensor)]
        outputs = [o for o in outputs if o.is_floating_point() and o.requires_grad]
        mixed = sum((o * _noise(o, network.calibration, chunk, generator)).sum() for o in outputs)
        if not isinstance(mixed, Tensor):
            return {}
        gradients = torch.autograd.grad(mixed, list(watched.values()), allow_unused=True)
    return {name: g for name, g in zip(watched, gradients, strict=True) if g is not None}


def _noise(output: Tensor, calibration: Calibration, chunk: int, generator: torch.Generator) -> Tensor:
    """Normal noise of an output's shape: that of the whole chunk, of which this process takes its own images'."""
    images = calibration.chunks[chunk].rows
    per_image = len(output) // images if output.ndim else 0
    if per_image * images != (len(output) if output.ndim else 1):  # the number of entries per image is not whole
        return torch.randn(output.shape, generator=generator).to(output.device)
    whole = torch.randn(calibration.sizes[chunk] * per_image, *output.shape[1:], generator=generator)
    start = calibration.starts[chunk] * per_image
    return whole[start : start + len(output)].to(output.device)
