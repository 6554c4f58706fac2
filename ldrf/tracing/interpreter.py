"""Run any stretch of a traced network with weights of one's own; BatchNorms behind layers are folded into them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, fx, nn

from ldrf.runtime.device import CPU, exact, forward_precision, single
from ldrf.tracing.layer import Norm, apply_affine, transposed_kernel
from ldrf.tracing.narrowing import narrowed
from ldrf.tracing.operations import source_of
from ldrf.tracing.operator_table import operator_of
from ldrf.tracing.trace import Trace


@dataclass(frozen=True)
class Constant:
    """What a call gives instead of being run: one value per channel [n].

    The channels are the outputs of the layer with this ``weight``. They lie in dimension ``dim`` of ``dims``.
    """

    values: Tensor
    dim: int
    dims: int
    weight: str

    def shaped(self, device: torch.device) -> Tensor:
        """The values as a tensor that is added to a map of any size."""
        return self.values.to(device).view([-1 if dim == self.dim else 1 for dim in range(self.dims)])


@dataclass(frozen=True)
class Weights:
    """What a run needs beside its inputs: folded (weight, bias) by layer node, other tensors by placeholder.

    They are used on ``device``. Weights that lie elsewhere, as in the host's memory where the device has no room for
    all of them, are brought there call by call.
    """

    layers: dict[str, tuple[Tensor, Tensor | None]]
    tensors: dict[str, Tensor]
    device: torch.device = CPU
    precision: str = "float32"  # of convolutions and products
    constants: dict[str, Constant] = field(default_factory=dict)  # by node, where a branch is left out
    idle: frozenset[str] = frozenset()  # calls of such branches, which are not run

    @property
    def home(self) -> torch.device:
        """Where the layers' weights lie: on the device, or in the host's memory."""
        return next((weight.device for weight, _ in self.layers.values()), self.device)

    def layer(self, node: str) -> tuple[Tensor, Tensor | None]:
        """A layer's weight [n, ...] and bias, on the device."""
        weight, bias = self.layers[node]
        return weight.to(self.device), None if bias is None else bias.to(self.device)

    def affine(self, node: str) -> tuple[Tensor, Tensor]:
        """A layer's weight [n, ...] and constant [n], zeros where it has no bias, on the device."""
        weight, bias = self.layer(node)
        return weight, weight.new_zeros(len(weight)) if bias is None else bias

    def placed(self, device: torch.device) -> "Weights":
        """The same with all tensors lying on ``device``; where they are used does not change."""
        layers = {node: _placed(affine, device) for node, affine in self.layers.items()}
        return replace(self, layers=layers, tensors={n: t.to(device) for n, t in self.tensors.items()})

    def with_layers(self, changed: Mapping[str, tuple[Tensor, Tensor | None]]) -> "Weights":
        return replace(self, layers={**self.layers, **changed})

    def with_tensors(self, changed: Mapping[str, Tensor]) -> "Weights":
        return replace(self, tensors={**self.tensors, **changed})


def _placed(affine: tuple[Tensor, Tensor | None], device: torch.device) -> tuple[Tensor, Tensor | None]:
    """A layer's tensors on a device: the very same pair if they are there, as layers are told apart by it."""
    weight, bias = affine
    there = weight.device == device and (bias is None or bias.device == device)
    return affine if there else (weight.to(device), None if bias is None else bias.to(device))


def folded(trace: Trace, model: nn.Module) -> Weights:
    """The network's tensors in float32 with every following BatchNorm folded into its layer."""
    state = dict(model.state_dict(keep_vars=False)) | dict(model.named_parameters()) | dict(model.named_buffers())
    own = {name: tensor.detach().float() if tensor.is_floating_point() else tensor for name, tensor in state.items()}
    layers: dict[str, tuple[Tensor, Tensor | None]] = {}
    for layer in trace.layers:
        weight, bias = own[layer.weight], own[layer.bias] if layer.bias else None
        weight = transposed_kernel(weight) if layer.is_transposed else weight
        weight = weight.contiguous()  # see layout.py: not all is safe
        layers[layer.node] = fold(layer.norm, weight, bias, own) if layer.norm else (weight, bias)
    tensors = {holder: own[name] for holder, name in trace.names.items() if name in own} | trace.constants
    return Weights(layers, tensors, Weights(layers, {}).home)


def fold(norm: Norm, weight: Tensor, bias: Tensor | None, own: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """The affine map of a layer followed by its BatchNorm: W g/s and (b - mean) g/s + beta."""
    scale = (exact(own[norm.var]) + norm.eps).rsqrt()
    if norm.weight:
        scale = scale * exact(own[norm.weight])
    shift = (exact(bias) if bias is not None else 0) - exact(own[norm.mean])
    offset = shift * scale + (exact(own[norm.bias]) if norm.bias else 0)
    shape = (-1,) + (1,) * (weight.ndim - 1)
    return single(exact(weight) * scale.view(shape), weight), single(offset, weight)


def run(trace: Trace, weights: Weights, nodes: Iterable[fx.Node], values: dict[str, Any]) -> dict[str, Any]:
    """Execute ``nodes`` in order, reading and writing ``values`` by node name; returns ``values``."""
    with forward_precision(weights.device, weights.precision):
        return _run(trace, weights, nodes, values)


def _run(trace: Trace, weights: Weights, nodes: Iterable[fx.Node], values: dict[str, Any]) -> dict[str, Any]:
    fused = trace.fused
    for node in nodes:
        if node.name in values or node.name in weights.idle:
            continue
        if node.name in weights.constants:
            values[node.name] = weights.constants[node.name].shaped(weights.device)
        elif node.name in weights.layers:
            layer, x = trace.layer_at[node.name], values[source_of(node)]
            values[node.name] = apply_affine(layer, x, *weights.layer(node.name))
        elif node.name in fused:  # the getitem behind a folded norm: the layer's own output
            values[node.name] = values[node.args[0].args[0].name]  # pyright: ignore
        elif any(user.name in fused for user in node.users):
            continue
        else:
            values[node.name] = _apply(trace, node, weights, values)
    return values


def _apply(trace: Trace, node: fx.Node, weights: Weights, values: dict[str, Any]) -> Any:
    def look_up(n: fx.Node) -> Any:
        return values[n.name] if n.name in values else weights.tensors[n.name].to(weights.device)

    args: Any = fx.map_arg(node.args, look_up)
    kwargs: Any = fx.map_arg(node.kwargs, look_up)
    if kwargs.get("device") is not None:  # the one it was traced on
        kwargs = {**kwargs, "device": weights.device}
    if node.target is torch.ops.aten._assert_tensor_metadata.default:
        return None  # it states the device and the kind of numbers that the model was traced with
    operator = operator_of(node)
    if operator and operator.sizes:
        args, kwargs = narrowed(operator.sizes, node, args, kwargs, trace.channel_dims.get(node.name))
    if operator and operator.runs_as:
        return operator.runs_as(*args)
    return node.target(*args, **kwargs)  # pyright: ignore


def read_tensor(model: nn.Module, name: str) -> Tensor:
    """A parameter or buffer by its qualified name."""
    path, _, leaf = name.rpartition(".")
    return getattr(model.get_submodule(path), leaf)
