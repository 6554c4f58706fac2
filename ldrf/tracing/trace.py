"""The network as a list of ATen calls, with the name of every weight.

The user's module is exported once; convolutions and linear layers become :class:`Layer` records, and a
BatchNorm that directly follows one is folded into it, so that the maths sees one affine map per layer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, fx, nn

from ldrf.inputs import Inputs
from ldrf.tracing.export import export_program
from ldrf.tracing.layer import Layer
from ldrf.tracing.layer_reading import read_layer
from ldrf.tracing.operations import operation, read_by
from ldrf.tracing.rewrites import sink_views, spell_out_padding

PLACED = {"aten.as_strided", "aten.as_strided_scatter"}  # calls that name places in memory


@dataclass(frozen=True)
class Trace:
    """An exported network: its calls in order, its layers, and the qualified name behind each placeholder."""

    nodes: tuple[fx.Node, ...]
    names: dict[str, str]  # placeholder -> qualified parameter or buffer name
    inputs: tuple[str, ...]
    layers: tuple[Layer, ...]
    outputs: tuple[str, ...]
    called: dict[str, int]  # weight name -> number of calls that use it
    parameters: dict[str, int]  # parameter name -> number of elements
    constants: dict[str, Tensor]  # placeholder -> tensor written in the model's code
    fixed: frozenset[str]  # placeholders of tensors that a state dict does not carry, so they cannot be cut
    # What a walk over the channels adds: where they lie in the first argument and in the result of a call, and the
    # model's own tensor that a call looks up or moves and that is cut with them.
    channel_dims: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    cut_along: Mapping[str, str] = field(default_factory=dict)

    def index(self, node: str) -> int:
        return self._positions[node]

    def node(self, name: str) -> fx.Node:
        return self.nodes[self._positions[name]]

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {node.name: i for i, node in enumerate(self.nodes)}

    @cached_property
    def first_calls(self) -> dict[str, int]:
        """Position of the first call that reads each tensor of the model."""
        first: dict[str, int] = {}
        for i, node in enumerate(self.nodes):
            for read in node.all_input_nodes:
                if read.name in self.names:
                    first.setdefault(self.names[read.name], i)
        return first

    @cached_property
    def layer_at(self) -> dict[str, Layer]:
        """The layers by the node of their call."""
        return {layer.node: layer for layer in self.layers}

    @cached_property
    def last_uses(self) -> dict[int, list[str]]:
        """Graph position -> names whose value nobody needs after it."""
        last: dict[str, int] = {}
        for position, node in enumerate(self.nodes):
            for used in read_by(node):
                last[used] = position
        gone: dict[int, list[str]] = {}
        for name, position in last.items():
            if name not in self.outputs:
                gone.setdefault(position, []).append(name)
        return gone

    @cached_property
    def takes_channels_last(self) -> bool:
        """Whether images may lie in memory with their channels last: no call counts on the order of the traced ones."""
        return not any(_is_ordered(node) for node in self.nodes)

    @cached_property
    def fused(self) -> frozenset[str]:
        """Nodes behind a folded norm, which hold their layer's own output."""
        return frozenset(layer.norm.node for layer in self.layers if layer.norm)


def trace(model: nn.Module, example: Inputs) -> Trace:
    """Export ``model`` (in eval mode) with a free batch size and list its layers."""
    program = export_program(model, example, decomposed=True)
    signature = program.graph_signature
    names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    lifted = signature.inputs_to_lifted_tensor_constants
    names |= lifted
    sink_views(program.graph, names)
    spell_out_padding(program.graph)
    nodes = tuple(n for n in program.graph.nodes if n.op in ("call_function", "get_attr"))
    placeholders = [n for n in program.graph.nodes if n.op == "placeholder"]
    called = {names[node.name]: len(node.users) for node in placeholders if node.name in names}
    batch = next((n.meta["val"].shape[0] for n in placeholders if n.name not in names and _is_batch(n)), 1)
    computed = _behind_inputs(program.graph, names)
    layers = tuple(layer for n in nodes if n.name in computed and (layer := read_layer(n, names, batch)) is not None)
    outputs = tuple(name for name in signature.user_outputs if isinstance(name, str))
    user_inputs = tuple(n.name for n in placeholders if n.name not in names)
    learned = signature.inputs_to_parameters
    parameters = {learned[n.name]: n.meta["val"].numel() for n in placeholders if n.name in learned}
    stored: dict[str, Any] = dict(program.constants)
    constants = {holder: stored[name] for holder, name in lifted.items()}
    unsaved = {h for h, name in names.items() if name in signature.non_persistent_buffers}
    fixed = frozenset(unsaved | set(lifted))
    return Trace(nodes, names, user_inputs, layers, outputs, called, parameters, constants, fixed)


def _behind_inputs(graph: fx.Graph, names: Mapping[str, str]) -> set[str]:
    """Nodes whose values depend on the images; the others compute with the model's own tensors alone."""
    behind: set[str] = set()
    for node in graph.nodes:
        is_input = node.op == "placeholder" and node.name not in names
        if is_input or any(read.name in behind for read in node.all_input_nodes):
            behind.add(node.name)
    return behind


def _is_ordered(node: fx.Node) -> bool:
    """Whether a call may count on the order of values in memory: it names places, draws numbers, or is not torch's."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return False
    drawn = torch.Tag.nondeterministic_seeded in target.tags
    return drawn or target.namespace != "aten" or operation(node) in PLACED


def _is_batch(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, Tensor) and value.ndim > 0
