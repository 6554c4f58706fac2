"""Write slim tensors into a copy of the user's model (Alg. 1, stage 3): same class, same depth, same names.

Modules of a branch that was left out keep their names, and stand-ins take their places.

Norms that were folded for the maths are restored: they get fresh statistics and an affine part so that layer and
norm together compute the folded layer.
"""

import copy
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ldrf.calibration.calibration_set import Calibration
from ldrf.calibration.network import Network
from ldrf.runtime.device import exact
from ldrf.runtime.processes import sum_all
from ldrf.tracing.interpreter import Weights
from ldrf.tracing.layer import transposed_kernel
from ldrf.tracing.lean_run import input_values, run_lean
from ldrf.tracing.trace import Layer, Trace
from ldrf.units.indices import stated_sizes
from ldrf.units.left_out import constant_tensors, leave_out
from ldrf.units.module_surgery import cut_tensors, write_sizes, write_tensors


@dataclass(frozen=True)
class OutputStatistics:
    """Mean and variance per channel of a layer's raw output, before its norm."""

    mean: Tensor
    var: Tensor


def recompose(
    network: Network,
    slim: Weights,
    changed: set[str],
    kept: dict[str, Tensor],
    statistics: dict[str, OutputStatistics],
) -> nn.Module:
    """A deep copy of the user's model whose changed layers compute what ``slim`` says."""
    copied = copy.deepcopy(network.model)
    tensors = cut_tensors(copied, network.units, kept)
    for layer in network.trace.layers:
        if layer.node in changed:
            tensors |= _restored(layer, slim.layer(layer.node), statistics.get(layer.node))
    write_tensors(copied, tensors)
    write_sizes(copied, stated_sizes(network.units, kept))
    for branch in network.branches:
        if branch.end in slim.constants:
            leave_out(copied, branch.stand_ins)
            values = slim.constants[branch.end].values
            write_tensors(copied, constant_tensors(branch.stand_ins, values, copied))
    return copied


def _restored(
    layer: Layer, parameters: tuple[Tensor, Tensor | None], statistics: OutputStatistics | None
) -> dict[str, Tensor]:
    """Tensors of a layer and its norm that together compute the folded map W' x + b'."""
    weight, bias = parameters
    bias = bias if bias is not None else weight.new_zeros(len(weight))
    weight = transposed_kernel(weight) if layer.is_transposed else weight
    norm = layer.norm
    if norm is None:
        return {layer.weight: weight} | ({layer.bias: bias} if layer.bias else {})
    mean = statistics.mean if statistics else torch.zeros_like(bias)
    var = statistics.var if statistics else torch.ones_like(bias)
    tensors = {layer.weight: weight, norm.mean: mean, norm.var: var}
    if layer.bias:
        tensors[layer.bias] = torch.zeros_like(bias)
    scale = (var + norm.eps).sqrt()
    if norm.weight and norm.bias:
        return tensors | {norm.weight: scale, norm.bias: bias + mean}
    # A norm without affine part has only its statistics to carry the bias.
    return tensors | {norm.mean: -bias, norm.var: torch.full_like(bias, 1.0 - norm.eps)}


@torch.no_grad()
def output_statistics(
    trace: Trace, slim: Weights, changed: set[str], calibration: Calibration, examples: int = 512
) -> dict[str, OutputStatistics]:
    """Per-channel mean and variance of every changed layer that has a norm, in the slim network."""
    layers = [layer for layer in trace.layers if layer.node in changed and layer.norm]
    layers.sort(key=lambda layer: trace.index(layer.node))
    slim = replace(slim, precision="float32")  # norms must fit the model, which runs in its own precision
    sums: dict[str, Tensor] = {}
    count = 0
    for chunk, size in zip(calibration.chunks, calibration.sizes, strict=True):
        values, at = input_values(trace, chunk, slim.device), 0
        for layer in layers if chunk.rows else ():
            position = trace.index(layer.node) + 1
            run_lean(trace, slim, at, position, values)  # all maps of a deep network at once would not fit
            raw, at = exact(values[layer.node].transpose(0, 1).flatten(1)), position
            bias = slim.layer(layer.node)[1]
            raw = raw - exact(bias)[:, None] if bias is not None else raw
            moments = torch.stack([raw.mean(1), raw.square().mean(1)]) * chunk.rows
            sums[layer.node] = sums[layer.node] + moments if layer.node in sums else moments
        count += size
        if count >= examples:
            break
    statistics = {}
    for node, total in sum_all(sums).items():
        mean, square = total / count
        var = (square - mean.square()).clamp_min(0)
        statistics[node] = OutputStatistics(mean.float().to(slim.device), var.float().to(slim.device))
    return statistics
