"""Many pieces in one ONNX graph, each by itself, with names that tell in a runtime's profile which is which."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ldrf.deployment.activations import ACTIVATIONS
from ldrf.deployment.geometry import Piece

OPSET, IR = 20, 10
_NAMED = re.compile(r"(?<![A-Za-z0-9])piece(\d+)_")


def pieces_graph(pieces: Sequence[Piece]) -> tuple[bytes, dict[str, np.ndarray]]:
    """The graph of all pieces as ONNX, and what to feed it."""
    from onnx import helper

    nodes, constants, inputs, outputs, feeds = [], [], [], [], {}
    for number, piece in enumerate(pieces):
        drawn = _Drawing(f"piece{number}_", piece)
        drawn.draw()
        nodes += drawn.nodes
        constants += drawn.constants
        feeds |= drawn.feeds
        inputs += [_value(name, array.shape) for name, array in drawn.feeds.items()]
        outputs.append(_value(drawn.last, piece.output_shape))
    graph = helper.make_graph(nodes, "pieces", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)
    return model.SerializeToString(), feeds


def sum_by_piece(events: Iterable[tuple[str, str, float]], count: int) -> list[float]:
    """Seconds of each of ``count`` pieces in one run, from (node, operator, seconds) in the order they ran.

    Reorders do not count: they bring a lone layer's map into the runtime's layout, where a network's maps already are.
    A node that the runtime has renamed belongs to the piece before it.
    """
    seconds, last = [0.0] * count, None
    for node, operator, spent in events:
        match = _NAMED.search(node)
        if match is not None:
            last = int(match.group(1))
        if last is not None and "reorder" not in operator.lower() and "other" not in node:
            seconds[last] += spent
    return seconds


def _value(name: str, shape: Sequence[int]) -> Any:
    from onnx import TensorProto, helper

    return helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape))


class _Drawing:
    """The nodes, constants and inputs of one piece, all named with its prefix."""

    def __init__(self, prefix: str, piece: Piece) -> None:
        self.prefix, self.piece = prefix, piece
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.feeds: dict[str, np.ndarray] = {}
        self.last = ""
        self.random = np.random.default_rng(0)

    def draw(self) -> None:
        piece, g = self.piece, self.piece.geometry
        x, weight, bias = (
            self.feed("x", piece.input_shape),
            self.weights(),
            self.constant("bias", np.zeros(piece.outputs)),
        )
        if g.kind == "linear":
            self.linear(x, weight, bias)
        else:
            self.convolve(x, weight, bias)
        if g.is_added:
            self.add_other()
        if g.activation is not None:
            self.activate(g.activation)

    def linear(self, x: str, weight: str, bias: str) -> None:
        if not self.piece.geometry.size:
            self.node("Gemm", (x, weight, bias), "gemm", transB=1)
            return
        product = self.node("MatMul", (x, weight), "product")
        self.node("Add", (product, bias), "sum")

    def convolve(self, x: str, weight: str, bias: str) -> None:
        g = self.piece.geometry
        attributes = {
            "kernel_shape": list(g.kernel),
            "strides": list(g.stride),
            "pads": [*g.padding, *g.padding],
            "dilations": list(g.dilation),
            "group": self.piece.groups,
        }
        if g.kind == "transposed":
            attributes["output_padding"] = list(g.output_padding)
        self.node("Conv" if g.kind == "conv" else "ConvTranspose", (x, weight, bias), "conv", **attributes)

    def add_other(self) -> None:
        """Add a map that lies in the layout of the runtime, as that of a residual stream does."""
        before, shape = self.last, self.piece.output_shape
        other = self.feed("other", shape)
        if self.piece.geometry.kind != "linear":
            ones = self.constant("other_weight", np.ones((shape[1], 1, *[1] * (len(shape) - 2))))
            other = self.node("Conv", (other, ones), "other_map", group=shape[1])
        self.node("Add", (before, other), "added")

    def activate(self, name: str) -> None:
        activation = ACTIVATIONS[name]
        names = {"x": self.last} | {n: self.constant(n, np.float32(v)) for n, v in activation.limits}
        for operator, inputs, output, attributes in activation.nodes:
            names[output] = self.node(operator, tuple(names[i] for i in inputs), f"act_{output}", **attributes)

    def weights(self) -> str:
        drawn = self.random.standard_normal(self.piece.weight_shape) * 0.01
        transposed = self.piece.geometry.kind == "linear" and bool(self.piece.geometry.size)
        return self.constant("weight", drawn.T if transposed else drawn)

    def feed(self, name: str, shape: Sequence[int]) -> str:
        self.feeds[self.prefix + name] = self.random.standard_normal(tuple(shape), dtype=np.float32)
        return self.prefix + name

    def constant(self, name: str, values: Any) -> str:
        from onnx import numpy_helper

        array = np.ascontiguousarray(values, dtype=np.float32).reshape(np.shape(values))
        self.constants.append(numpy_helper.from_array(array, self.prefix + name))
        return self.prefix + name

    def node(self, operator: str, inputs: tuple[str, ...], output: str, **attributes: Any) -> str:
        from onnx import helper

        self.last = self.prefix + output
        self.nodes.append(helper.make_node(operator, list(inputs), [self.last], name=self.last, **attributes))
        return self.last
