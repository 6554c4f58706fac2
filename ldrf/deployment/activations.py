"""Activations that follow a layer: as torch calls them, and as ONNX spells them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor

Node = tuple[str, tuple[str, ...], str, dict[str, Any]]  # operator, inputs, output, attributes


@dataclass(frozen=True)
class Activation:
    """One activation: what torch computes, and the ONNX nodes from ``x`` to ``y``; ``limits`` are constants by name."""

    apply: Callable[[Tensor], Tensor]
    nodes: tuple[Node, ...]
    limits: tuple[tuple[str, float], ...] = ()


def _one(operator: str, **attributes: Any) -> tuple[Node, ...]:
    return ((operator, ("x",), "y", attributes),)


# By the name of the call in a trace.
ACTIVATIONS = {
    "aten.relu": Activation(F.relu, _one("Relu")),
    "aten.hardtanh": Activation(F.relu6, (("Clip", ("x", "low", "high"), "y", {}),), (("low", 0.0), ("high", 6.0))),
    "aten.silu": Activation(F.silu, (("Sigmoid", ("x",), "s", {}), ("Mul", ("x", "s"), "y", {}))),
    "aten.gelu": Activation(F.gelu, _one("Gelu")),
    "aten.hardswish": Activation(F.hardswish, _one("HardSwish")),
    "aten.sigmoid": Activation(lambda x: x.sigmoid(), _one("Sigmoid")),
    "aten.hardsigmoid": Activation(F.hardsigmoid, _one("HardSigmoid", alpha=1 / 6)),
    "aten.leaky_relu": Activation(F.leaky_relu, _one("LeakyRelu", alpha=0.01)),
    "aten.tanh": Activation(lambda x: x.tanh(), _one("Tanh")),
}
