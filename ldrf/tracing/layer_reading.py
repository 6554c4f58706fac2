"""A call of the traced graph read as a layer: its tensors by name, its geometry, and the norm behind it."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from torch import fx

from ldrf.tracing.export import known_size
from ldrf.tracing.layer import Layer, Norm
from ldrf.tracing.operations import LAYER_CALLS, LINEARS, NORM, TRANSPOSED, bound_args, operation, same_padding, spread

Arguments = dict[str, Any]
Names = Mapping[str, str]  # placeholder -> qualified name of the tensor


def read_layer(node: fx.Node, names: Names, batch: Any) -> Layer | None:
    """The layer that a call is; None where it is none, or one that cannot be followed.

    ``batch`` is the size of a batch in the trace, a number or a symbol.
    """
    if node.op != "call_function" or operation(node) not in LAYER_CALLS:
        return None
    args = bound_args(node)
    if not isinstance(args["weight"], fx.Node) or args["weight"].name not in names:
        return None
    is_linear = operation(node) in LINEARS
    return _linear(node, args, names, batch) if is_linear else _convolution(node, args, names, batch)


def _linear(node: fx.Node, args: Arguments, names: Names, batch: Any) -> Layer:
    inputs_first = operation(node) == "aten.addmm"
    rows, columns = args["weight"].meta["val"].shape
    out = tuple(node.meta["val"].shape)
    return Layer(
        **_tensor_names(node, args, names),
        norm=None,
        kernel=(),
        stride=(),
        padding=(),
        dilation=(),
        groups=1,
        inputs=rows if inputs_first else columns,
        outputs=columns if inputs_first else rows,
        positions=_product(out[1:-1]),
        is_transposed=inputs_first,
        entries=_entries(out[0], batch) if len(out) > 1 else 1,
        shared_by=_shared_by(out[:-1], batch),
    )


def _convolution(node: fx.Node, args: Arguments, names: Names, batch: Any) -> Layer | None:
    shape, out = tuple(args["weight"].meta["val"].shape), tuple(node.meta["val"].shape)
    kernel, groups, is_transposed = shape[2:], int(args.get("groups", 1)), operation(node) in TRANSPOSED
    padding = _padding(args, kernel)
    if padding is None or (is_transposed and groups > 1):
        return None
    return Layer(
        **_tensor_names(node, args, names),
        norm=_norm(node, names),
        kernel=kernel,
        stride=spread(args.get("stride", 1), len(kernel)),
        padding=padding,
        dilation=spread(args.get("dilation", 1), len(kernel)),
        groups=groups,
        inputs=shape[0] if is_transposed else shape[1] * groups,
        outputs=shape[1] if is_transposed else shape[0],
        positions=_product(out[2:]),
        is_transposed=is_transposed,
        output_padding=spread(args.get("output_padding", 0), len(kernel)) if is_transposed else (),
        input_positions=_product(args["input"].meta["val"].shape[2:]) if is_transposed else 0,
        entries=_entries(out[0], batch),
        shared_by=_shared_by((out[0], *out[2:]), batch),
    )


def _tensor_names(node: fx.Node, args: Arguments, names: Names) -> dict[str, Any]:
    """The layer's own name, and those of its call and of its tensors."""
    weight, bias = args["weight"], args.get("bias")
    module = names[weight.name].removesuffix(".weight")
    return {
        "name": _owner(node, module) if len(weight.users) > 1 else module,
        "node": node.name,
        "weight": names[weight.name],
        "bias": _name(bias, names),
    }


def _name(tensor: Any, names: Names) -> str | None:
    return names.get(tensor.name) if isinstance(tensor, fx.Node) else None


def _owner(node: fx.Node, fallback: str) -> str:
    """The module that makes this call, for a weight that several modules share under one name."""
    path, kind = next(reversed((node.meta.get("nn_module_stack") or {"": ("", "")}).values()))
    return path.partition("@")[0] if "Linear" in str(kind) or "Conv" in str(kind) else fallback


def _padding(args: Arguments, kernel: tuple[int, ...]) -> tuple[int, ...] | None:
    """Zeros on either side, also where they are given by name; None where the two sides differ."""
    padding, dims = args.get("padding", 0), len(kernel)
    if not isinstance(padding, str):
        return spread(padding, dims)
    total = same_padding(args, kernel, dims) if padding == "same" else [0] * dims
    return None if any(t % 2 for t in total) else tuple(t // 2 for t in total)


def _product(sizes: Iterable[Any]) -> int:
    """Positions of a single example, wherever the examples are counted."""
    return math.prod(_entries(size, None) for size in sizes)


def _entries(size: Any, batch: Any) -> int:
    """A dimension as it is for a single example; the model may have fixed the size of a batch itself."""
    known, whole = known_size(size), None if batch is None else known_size(batch)
    if known is not None:
        return known // whole if whole and known % whole == 0 else known
    expression = size.node.expr
    return max(1, int(expression.subs(dict.fromkeys(expression.free_symbols, 1))))


def _shared_by(sizes: tuple[Any, ...], batch: Any) -> int:
    """Examples that share an entry of the first dimension, where a batch of fixed size lies in other dimensions."""
    whole, known = known_size(batch), [known_size(size) for size in sizes]
    if not whole or None in known or not known or (known[0] or 0) % whole == 0:
        return 1
    return whole if math.prod(size or 0 for size in known) % whole == 0 else 1


def _norm(node: fx.Node, names: Names) -> Norm | None:
    """The BatchNorm that alone reads this layer's output, if there is one."""
    users = list(node.users)
    if len(users) != 1 or operation(users[0]) != NORM or users[0].args[0] is not node:
        return None
    arguments: Any = users[0].args
    _, weight, bias, mean, var, _, eps = arguments
    if not (isinstance(mean, fx.Node) and mean.name in names):
        return None
    picks = [u for u in users[0].users if operation(u) == "getitem" and u.args[1] == 0]
    if len(picks) != 1:
        return None
    return Norm(picks[0].name, _name(weight, names), _name(bias, names), names[mean.name], names[var.name], float(eps))
