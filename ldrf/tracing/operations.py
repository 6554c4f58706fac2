"""Calls of a traced graph by the name of their ATen operation, and what they are called with."""

import operator
from typing import Any

from torch import fx

CONVOLUTIONS = {"aten.conv1d", "aten.conv2d", "aten.conv3d"}
TRANSPOSED = {"aten.conv_transpose1d", "aten.conv_transpose2d", "aten.conv_transpose3d"}
LINEARS = {"aten.linear", "aten.addmm"}  # addmm: a linear layer whose weight is stored inputs first
LAYER_CALLS = CONVOLUTIONS | TRANSPOSED | LINEARS
NORM = "aten._native_batch_norm_legit_no_training"


def operation(node: fx.Node) -> str:
    """The name of the ATen operation without its overload, e.g. ``aten.relu``."""
    if node.target is operator.getitem:
        return "getitem"
    return str(node.target).rpartition(".")[0] if "." in str(node.target) else str(node.target)


def bound_args(node: fx.Node) -> dict[str, Any]:
    """What a call is called with, by the names in its schema; those of addmm are named as a linear layer's."""
    schema = node.target._schema.arguments  # pyright: ignore
    given = {**{a.name: v for a, v in zip(schema, node.args, strict=False)}, **node.kwargs}
    if operation(node) == "aten.addmm":
        return {"input": given["mat1"], "weight": given["mat2"], "bias": given["self"]}
    return given


def source_of(node: fx.Node) -> str:
    """The name of the value that a layer's call reads."""
    return bound_args(node)["input"].name


def spread(value: Any, dims: int) -> tuple[int, ...]:
    """One number for each dimension, also where a call states a single one for all."""
    values = tuple(value) if isinstance(value, list | tuple) else (value,)
    return values * dims if len(values) == 1 else values


def same_padding(args: dict[str, Any], kernel: tuple[int, ...], dims: int) -> list[int]:
    """Zeros on both sides together that keep a map's size."""
    return [d * (k - 1) for d, k in zip(spread(args.get("dilation", 1), dims), kernel, strict=True)]


def read_by(node: fx.Node) -> list[str]:
    """Names a node reads; the getitem behind a folded norm reads the layer itself."""
    names = [n.name for n in node.all_input_nodes]
    deeper = [n.name for user in node.all_input_nodes for n in user.all_input_nodes if len(user.users) == 1]
    return names + (deeper if str(node.target).startswith("<built-in function getitem") else [])
