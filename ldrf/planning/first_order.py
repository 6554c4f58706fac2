"""How much small errors inside the network change its outputs, for all places at once, from a few backward passes.

With random directions v at the outputs, g = J^T v is the gradient at a layer's result. The mean of (g . e)^2 over
images and directions is |J e|^2: to first order, the squared change of the outputs by the error e that the layer makes.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx

from ldrf.calibration.network import Network
from ldrf.inputs import Inputs
from ldrf.runtime.device import exact
from ldrf.runtime.processes import sum_all, sum_over
from ldrf.tracing.interpreter import run
from ldrf.tracing.lean_run import Values, input_values, run_lean
from ldrf.tracing.operations import source_of
from ldrf.tracing.trace import Trace

Layers = Mapping[str, tuple[Tensor, Tensor | None]]  # other weight and bias by layer node

SAMPLES = 512  # products g . e per trial; one alone is as uncertain as a squared normal number
PIECES = 128  # groups of images that have a product of their own
MOST = 16  # backward passes per group


def estimated_changes(
    network: Network, trials: Mapping[str, Layers], chunks: list[int], progress: Any
) -> dict[str, float]:
    """Relative squared change of the outputs, to first order, with the layers of each trial in place of the dense ones.

    A trial is left out where nothing that it changes has a gradient.
    """
    calibration = network.calibration
    sizes = [calibration.sizes[index] for index in chunks]
    # A norm over the batch needs two; a batch of fixed size stays whole.
    images = network.example.rows if network.example.fixed else max(2, sum(sizes) // PIECES)
    directions = max(1, min(MOST, -(-SAMPLES // sum(max(1, size // images) for size in sizes))))
    sums = torch.zeros(len(trials), 2, dtype=torch.float64)  # of squared products, and how many there were
    for index in progress(chunks, "sensitivity"):
        whole, own = calibration.chunks[index], bool(calibration.own([index]))
        spread = _chunk_spreads(network, whole if own else None, calibration.sizes[index])
        for first in range(0, whole.rows if own else 0, images):
            part = whole.map(lambda t, first=first: t[first : first + images])
            seed = index * 1_000_003 + calibration.starts[index] + first
            products = _products(network, trials, part, spread, directions, seed)
            for i, name in enumerate(trials):
                if products.get(name):
                    sums[i] += torch.tensor([sum(p * p for p in products[name]) / directions, 1.0], dtype=torch.float64)
    sums = sum_over(sums)
    return {name: total / len(chunks) for name, (total, seen) in zip(trials, sums.tolist(), strict=True) if seen}


@torch.no_grad()
def _chunk_spreads(network: Network, chunk: Inputs | None, images: int) -> dict[str, float]:
    trace, outputs = network.trace, dict[str, Tensor]()
    if chunk is not None:
        given = input_values(trace, chunk, network.dense.device)
        outputs = float_outputs(trace, run_lean(trace, network.dense, 0, len(trace.nodes), given))
    return spreads(outputs, images)


def _products(
    network: Network,
    trials: Mapping[str, Layers],
    part: Inputs,
    spread: Mapping[str, float],
    directions: int,
    seed: int,
) -> dict[str, list[float]]:
    """g . e of each trial for some images: the derivative of a random mixture of the outputs along the trial's error.

    The error enters each result with a factor of zero, whose gradient is the product.
    """
    factors = {name: torch.zeros((), requires_grad=True) for name in trials}
    with torch.enable_grad():
        outputs = {n: o for n, o in _disturbed_outputs(network, trials, factors, part).items() if o.requires_grad}
        generator = torch.Generator().manual_seed(seed)
        products: dict[str, list[float]] = {}
        for number in range(directions if outputs else 0):
            mixed = torch.stack([_mixed(o, spread[n], generator) for n, o in outputs.items()]).sum()
            more = number + 1 < directions
            gradients = torch.autograd.grad(mixed, list(factors.values()), retain_graph=more, allow_unused=True)
            for name, gradient in zip(factors, gradients, strict=True):
                if gradient is not None:
                    products.setdefault(name, []).append(float(gradient))
    return products


def _disturbed_outputs(
    network: Network, trials: Mapping[str, Layers], factors: Mapping[str, Tensor], part: Inputs
) -> dict[str, Tensor]:
    """The outputs, as a function of a factor for the error of each trial."""
    trace, device, last = network.trace, network.dense.device, network.trace.last_uses
    at: dict[str, list[str]] = {}
    for name, layers in trials.items():
        for node in layers:
            at.setdefault(node, []).append(name)
    values = input_values(trace, part, device)
    for position, node in enumerate(trace.nodes):
        run(trace, network.dense, (node,), values)
        given = dict(values) if node.name in at else {}
        for name in at.get(node.name, ()):
            error = _layer_result(network, node, trials[name][node.name], given) - given[node.name].detach()
            values[node.name] = values[node.name] + factors[name].to(device) * error
        for name in last.get(position, ()):
            values.pop(name, None)
    return float_outputs(trace, values)


@torch.no_grad()
def _layer_result(network: Network, node: fx.Node, affine: tuple[Tensor, Tensor | None], values: Values) -> Tensor:
    """What a layer would give with another weight and bias."""
    weights = network.dense.with_layers({node.name: affine})
    return run(network.trace, weights, (node,), {source_of(node): values[source_of(node)]})[node.name]


def _mixed(output: Tensor, spread: float, generator: torch.Generator) -> Tensor:
    """A random mixture of an output's values, whose squared change is that of the output relative to its spread."""
    noise = torch.randn(output.shape, generator=generator).to(output.device)
    return (output * noise).sum() / spread**0.5


def float_outputs(trace: Trace, values: Values) -> dict[str, Tensor]:
    """The outputs that are floating-point tensors, in float32."""
    outputs = {name: values.get(name) for name in trace.outputs}
    return {name: v.float() for name, v in outputs.items() if isinstance(v, Tensor) and v.is_floating_point()}


def spreads(outputs: dict[str, Tensor], images: int) -> dict[str, float]:
    """Squared spread of each output over the images of a chunk, also those of other processes.

    A single image has none: there it is that of the output's values.
    """
    if images == 1:
        return {n: float((exact(o) - exact(o).mean()).square().sum()) + 1e-12 for n, o in outputs.items()}
    means = {name: total / images for name, total in sum_all({n: exact(o).sum(0) for n, o in outputs.items()}).items()}
    own = {name: (exact(o) - means[name]).square().sum() for name, o in outputs.items()}
    return {name: float(spread) + 1e-12 for name, spread in sum_all(own).items()}
