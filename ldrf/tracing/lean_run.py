"""The traced network run over calibration images, and one sentence where that goes wrong."""

import math
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import fx

from ldrf.errors import LdrfError
from ldrf.inputs import Inputs
from ldrf.runtime.layout import arranged
from ldrf.tracing.interpreter import Weights, run
from ldrf.tracing.operations import read_by
from ldrf.tracing.trace import Trace

Values = dict[str, Any]
LARGEST = 1e15  # of an activation: a hundred million squares of it still have a sum in float32


def input_values(trace: Trace, chunk: Inputs, device: torch.device | None = None) -> Values:
    """The graph's input placeholders bound to one chunk, which is brought to the device if one is given.

    On a CPU the channels of images lie last where the graph allows it, and so do those of all maps after them.
    """
    chunk = chunk if device is None else chunk.to(device)
    if trace.takes_channels_last and all(tensor.device.type == "cpu" for tensor in chunk.tensors()):
        chunk = arranged(chunk, torch.channels_last)
    given = [*chunk.args, *chunk.kwargs.values()]
    return dict(zip(trace.inputs, given, strict=False))


def check_finite(trace: Trace, node: fx.Node, values: Values) -> None:
    """Stop with the layer's name when an activation is not a number, or too large for sums of squares in float32."""
    layer = next((la for la in trace.layers if la.node == node.name), None)
    if layer is None:
        return
    largest = float(values[node.name].abs().max()) if values[node.name].numel() else 0.0
    if not math.isfinite(largest):
        raise LdrfError(
            f"The activations of layer '{layer.name}' must be finite, but NaN or infinite values came out of it: "
            "look at its weights and at the calibration images."
        )
    if largest > LARGEST:
        raise LdrfError(
            f"The activations of layer '{layer.name}' must stay below {LARGEST:g}, as their squares are summed. "
            f"Got {largest:.2g} instead: look at its weights and at the calibration images."
        )


def run_lean(
    trace: Trace, weights: Weights, start: int, stop: int, values: Values, wanted: Collection[str] = ()
) -> Values:
    """Run a stretch of the graph, letting go of every value that nobody needs afterwards and that is not ``wanted``."""
    last = trace.last_uses
    for position in range(start, stop):
        run(trace, weights, (trace.nodes[position],), values)
        for name in last.get(position, ()):
            if name not in wanted:
                values.pop(name, None)
    return values


def needed_for(nodes: Sequence[fx.Node], wanted: Collection[str], known: Collection[str]) -> list[fx.Node]:
    """Those of the ``nodes`` that must be run for the ``wanted`` values, given those that are known already."""
    missing, needed = set(wanted) - set(known), list[fx.Node]()
    for node in reversed(nodes):
        if node.name in missing:
            needed.append(node)
            missing |= set(read_by(node)) - set(known)
    return needed[::-1]
