"""All that decides how long a layer takes except its numbers of inputs and outputs."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from torch import Tensor, fx

from ldrf.deployment.activations import ACTIVATIONS
from ldrf.tracing.export import known_size
from ldrf.tracing.operations import bound_args, operation
from ldrf.tracing.trace import Layer, Trace

Kind = Literal["conv", "transposed", "linear"]


@dataclass(frozen=True)
class Geometry:
    """A layer without its numbers of channels, together with the sum and the activation that follow it."""

    kind: Kind
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    output_padding: tuple[int, ...]
    size: tuple[int, ...]  # of one map that it reads; of a linear layer the tokens, if any
    entries: int  # of the first dimension per example
    group: tuple[int, int] | None  # inputs and outputs of one group, where there are groups
    is_added: bool  # whether its result is the last addend of a sum
    activation: str | None  # the call behind it

    @property
    def key(self) -> str:
        """The same as text, for a table on disk."""
        values = asdict(self).values()
        return " ".join("x".join(map(str, v)) or "-" if isinstance(v, tuple) else str(v) for v in values)


@dataclass(frozen=True)
class Piece:
    """A layer that can be timed by itself: a geometry with so many inputs and outputs, and so many examples."""

    geometry: Geometry
    inputs: int
    outputs: int
    batch: int

    @property
    def input_shape(self) -> tuple[int, ...]:
        rows, size = self.batch * self.geometry.entries, self.geometry.size
        return (rows, *size, self.inputs) if self.geometry.kind == "linear" else (rows, self.inputs, *size)

    @property
    def output_shape(self) -> tuple[int, ...]:
        g, rows = self.geometry, self.batch * self.geometry.entries
        if g.kind == "linear":
            return (rows, *g.size, self.outputs)
        return (rows, self.outputs, *(self._output_size(axis) for axis in range(len(g.kernel))))

    def _output_size(self, axis: int) -> int:
        g = self.geometry
        reach = g.dilation[axis] * (g.kernel[axis] - 1)
        if g.kind == "transposed":
            return (g.size[axis] - 1) * g.stride[axis] - 2 * g.padding[axis] + reach + g.output_padding[axis] + 1
        return (g.size[axis] + 2 * g.padding[axis] - reach - 1) // g.stride[axis] + 1

    @property
    def groups(self) -> int:
        return self.inputs // self.geometry.group[0] if self.geometry.group else 1

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """As torch stores it."""
        if self.geometry.kind == "transposed":
            return (self.inputs, self.outputs, *self.geometry.kernel)
        return (self.outputs, self.inputs // self.groups, *self.geometry.kernel)


def geometry_of(trace: Trace, layer: Layer) -> Geometry | None:
    """The geometry of a layer's call; None where the sizes of its input are not known."""
    given = bound_args(trace.node(layer.node))["input"].meta.get("val")
    if not isinstance(given, Tensor):
        return None
    sizes = tuple(known_size(s) for s in (given.shape[1:-1] if layer.is_linear else given.shape[2:]))
    if any(size is None for size in sizes):
        return None
    is_added, activation = _behind(trace, layer)
    return Geometry(
        kind="linear" if layer.is_linear else "transposed" if layer.is_transposed else "conv",
        kernel=layer.kernel,
        stride=layer.stride,
        padding=layer.padding,
        dilation=layer.dilation,
        output_padding=layer.output_padding,
        size=tuple(size for size in sizes if size is not None),
        entries=layer.entries,
        group=(layer.inputs // layer.groups, layer.outputs // layer.groups) if layer.groups > 1 else None,
        is_added=is_added,
        activation=activation,
    )


def _behind(trace: Trace, layer: Layer) -> tuple[bool, str | None]:
    """Whether a layer's result closes a sum, and the activation that alone reads what comes of it."""
    node = trace.node(layer.result)
    user = _only_user(node)
    is_added = user is not None and _closes(trace, user, node)
    if is_added:
        user = _only_user(user)
    return is_added, operation(user) if user is not None and operation(user) in ACTIVATIONS else None


def _only_user(node: fx.Node | None) -> fx.Node | None:
    users = list(node.users) if node is not None else []
    return users[0] if len(users) == 1 and users[0].op == "call_function" else None


def _closes(trace: Trace, user: fx.Node, node: fx.Node) -> bool:
    """Whether ``user`` adds ``node`` to a map of the same shape that is there already."""
    if operation(user) != "aten.add" or len(user.args) < 2:
        return False
    others: list[Any] = [arg for arg in user.args[:2] if arg is not node]
    if len(others) != 1 or not isinstance(others[0], fx.Node):
        return False
    shapes = [_shape(n) for n in (node, others[0])]
    order = {n.name: i for i, n in enumerate(trace.nodes)}
    return shapes[0] == shapes[1] and order.get(others[0].name, -1) < order[node.name]


def _shape(node: fx.Node) -> tuple[int | None, ...] | None:
    value = node.meta.get("val")
    return tuple(known_size(s) for s in value.shape) if isinstance(value, Tensor) else None
