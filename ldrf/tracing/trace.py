"""The network as a list of ATen calls, with the name of every weight.

The user's module is exported once; convolutions and linear layers become :class:`Layer` records, and a
BatchNorm that directly follows one is folded into it, so that the maths sees one affine map per layer.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from torch import Tensor, fx, nn

from ldrf.inputs import Inputs
from ldrf.tracing.export import export_program, known_size
from ldrf.tracing.operations import LAYER_CALLS, LINEARS, NORM, TRANSPOSED, bound_args, operation, same_padding, spread
from ldrf.tracing.rewrites import sink_views, spell_out_padding


@dataclass(frozen=True)
class Norm:
    """A BatchNorm folded into the layer before it: the names of its four tensors and its epsilon."""

    node: str
    weight: str | None
    bias: str | None
    mean: str
    var: str
    eps: float

    @property
    def module(self) -> str:
        return self.mean.rpartition(".")[0]


@dataclass(frozen=True)
class Layer:
    """One convolution or linear call: where it stands in the graph, which tensors it uses, its geometry."""

    name: str
    node: str
    weight: str
    bias: str | None
    norm: Norm | None
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    inputs: int
    outputs: int
    positions: int  # output positions per entry of the first dimension: H*W, or tokens
    is_transposed: bool = False  # its weight is stored inputs first; in the maths it is used as :func:`turned` says
    output_padding: tuple[int, ...] = ()
    input_positions: int = 0  # of a transposed convolution, which works once for each of them
    entries: int = 1  # of the first dimension per example: several where windows or frames are folded into the batch

    @property
    def calls(self) -> int:
        """How often the weight is used per example."""
        return self.entries * (self.input_positions or self.positions)

    @property
    def row_dim(self) -> int:
        """Dimension of the stored weight that counts the outputs; the other of the first two counts the inputs."""
        return int(self.is_transposed)

    @property
    def is_linear(self) -> bool:
        return not self.kernel

    @property
    def channel_dim(self) -> int:
        """Where its outputs stand in what it gives."""
        return -1 if self.is_linear else 1

    @property
    def has_bias(self) -> bool:
        """Whether the layer can add a constant, by itself or through its norm."""
        return self.bias is not None or self.norm is not None

    @property
    def is_depthwise(self) -> bool:
        return self.groups > 1 and self.groups == self.outputs and self.inputs == self.outputs

    @property
    def result(self) -> str:
        """The graph node that holds the layer's output, after its norm."""
        return self.norm.node if self.norm else self.node


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
        found: dict[str, int] = {}
        for i, node in enumerate(self.nodes):
            for read in node.all_input_nodes:
                if read.name in self.names:
                    found.setdefault(self.names[read.name], i)
        return found

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
    called: dict[str, int] = {}
    for node in placeholders:
        if node.name in names:
            called[names[node.name]] = len(node.users)
    batch = next((n.meta["val"].shape[0] for n in placeholders if n.name not in names and _is_batch(n)), 1)
    seen = _behind_inputs(program.graph, names)
    layers = tuple(layer for n in nodes if n.name in seen and (layer := _layer(n, names, batch)) is not None)
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
    seen: set[str] = set()
    for node in graph.nodes:
        if (node.op == "placeholder" and node.name not in names) or any(n.name in seen for n in node.all_input_nodes):
            seen.add(node.name)
    return seen


def _is_batch(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, Tensor) and value.ndim > 0


def _layer(node: fx.Node, names: dict[str, str], batch: Any) -> Layer | None:
    op = operation(node)
    if node.op != "call_function" or op not in LAYER_CALLS:
        return None
    args = bound_args(node)
    weight, bias = args["weight"], args.get("bias")
    if not isinstance(weight, fx.Node) or weight.name not in names:
        return None
    shape = tuple(weight.meta["val"].shape)
    out = tuple(node.meta["val"].shape)
    linear = op in LINEARS
    dims = len(shape) - 2
    spaced = lambda key, default: spread(args.get(key, default), dims)  # noqa: E731
    groups = 1 if linear else int(args.get("groups", 1))
    transposed = op in TRANSPOSED or op == "aten.addmm"
    padding = () if linear else _padding(args, shape[2:], dims)
    if padding is None or (transposed and groups > 1):
        return None
    positions = out[1:-1] if linear else out[2:]
    name = names[weight.name]
    return Layer(
        name=_owner(node, name.removesuffix(".weight")) if len(weight.users) > 1 else name.removesuffix(".weight"),
        node=node.name,
        weight=name,
        bias=names[bias.name] if isinstance(bias, fx.Node) and bias.name in names else None,
        norm=None if linear else _norm(node, names),
        kernel=() if linear else shape[2:],
        stride=() if linear else spaced("stride", 1),
        padding=padding,
        dilation=() if linear else spaced("dilation", 1),
        groups=groups,
        inputs=shape[0] if transposed else shape[1] * groups,
        outputs=shape[1] if transposed else shape[0],
        positions=_product(positions),
        is_transposed=transposed,
        output_padding=spaced("output_padding", 0) if op in TRANSPOSED else (),
        input_positions=_product(args["input"].meta["val"].shape[2:]) if op in TRANSPOSED else 0,
        entries=_entries(out[0], batch) if len(out) > 1 else 1,
    )


def _entries(size: Any, batch: Any) -> int:
    """A dimension as it is for a single example; the model may have fixed the size of a batch itself."""
    known, whole = known_size(size), None if batch is None else known_size(batch)
    if known is not None:
        return known // whole if whole and known % whole == 0 else known
    expression = size.node.expr
    return max(1, int(expression.subs(dict.fromkeys(expression.free_symbols, 1))))


def _padding(args: dict[str, Any], kernel: tuple[int, ...], dims: int) -> tuple[int, ...] | None:
    """Zeros on either side, also where they are given by name; None where the two sides differ."""
    padding = args.get("padding", 0)
    if not isinstance(padding, str):
        return spread(padding, dims)
    total = same_padding(args, kernel, dims) if padding == "same" else [0] * dims
    return None if any(t % 2 for t in total) else tuple(t // 2 for t in total)


def turned(weight: Tensor) -> Tensor:
    """A weight stored inputs first, [c, o, *k], as the plain one [o, c, *k]; done twice, it is the first again.

    That of a transposed convolution then slides over the same map with zeros set between its values.
    """
    return weight.transpose(0, 1).flip(tuple(range(2, weight.ndim)))


def _owner(node: fx.Node, fallback: str) -> str:
    """The module that makes this call, for a weight that several modules share under one name."""
    path, kind = next(reversed((node.meta.get("nn_module_stack") or {"": ("", "")}).values()))
    return path.partition("@")[0] if "Linear" in str(kind) or "Conv" in str(kind) else fallback


def _product(sizes: Iterable[Any]) -> int:
    """Positions of a single example, wherever the examples are counted."""
    return math.prod(_entries(size, None) for size in sizes)


def _norm(node: fx.Node, names: dict[str, str]) -> Norm | None:
    """The BatchNorm that alone reads this layer's output, if there is one."""
    users = list(node.users)
    if len(users) != 1 or operation(users[0]) != NORM or users[0].args[0] is not node:
        return None
    _, weight, bias, mean, var, _, eps = users[0].args
    if not (isinstance(mean, fx.Node) and mean.name in names):
        return None
    picks = [u for u in users[0].users if operation(u) == "getitem" and u.args[1] == 0]
    if len(picks) != 1:
        return None
    name = lambda n: names.get(n.name) if isinstance(n, fx.Node) else None  # noqa: E731
    return Norm(picks[0].name, name(weight), name(bias), names[mean.name], names[var.name], float(eps))  # pyright: ignore
