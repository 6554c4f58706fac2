"""A traced graph written otherwise, in calls that are easier to follow and compute the same."""

from collections.abc import Mapping

import torch
from torch import Tensor, fx

from ldrf.tracing.operations import CONVOLUTIONS, bound_args, operation, same_padding
from ldrf.tracing.operator_table import kind_of


def sink_views(graph: fx.Graph, names: Mapping[str, str]) -> None:
    """Move reshapes of the model's own tensors to where they are used, behind the layers these are cut with."""
    views: set[str] = set(names)
    for node in graph.nodes:
        tensors = {n.name for n in node.all_input_nodes if isinstance(n.meta.get("val"), Tensor)}
        is_moved = kind_of(node) == "moves" and isinstance(node.meta.get("val"), Tensor)
        if is_moved and tensors and tensors <= views:  # beside these it may read a size
            views.add(node.name)
    for node in reversed([n for n in graph.nodes if n.name in views - set(names)]):
        if len(node.users) == 1:
            next(iter(node.users)).prepend(node)


def spell_out_padding(graph: fx.Graph) -> None:
    """Where "same" means one zero more on the right than on the left, pad first; the call then pads nothing."""
    for node in [n for n in graph.nodes if operation(n) in CONVOLUTIONS and bound_args(n).get("padding") == "same"]:
        args = bound_args(node)
        x, weight = args["input"], args["weight"]
        kernel = tuple(weight.meta["val"].shape[2:])
        total = same_padding(args, kernel, len(kernel))
        if any(t % 2 for t in total):
            pads = [size for t in reversed(total) for size in (t // 2, t - t // 2)]
            with graph.inserting_before(node):
                padded = graph.call_function(torch.ops.aten.constant_pad_nd.default, (x, pads, 0.0))
            padded.meta.update({**node.meta, "val": _wider(x.meta["val"], total)})  # a new call has no shape yet
            node.target, node.kwargs = getattr(torch.ops.aten, operation(node).removeprefix("aten.")).default, {}
            ones, zeros = [1] * len(kernel), [0] * len(kernel)
            stride, dilation = args.get("stride", ones), args.get("dilation", ones)
            node.args = (padded, weight, args.get("bias"), stride, zeros, dilation, args.get("groups", 1))


def _wider(value: Tensor, total: list[int]) -> Tensor:
    """A stand-in of the padded map's size; the padding itself, run on a stand-in, would fix the size of its batch."""
    added = [0] * (value.ndim - len(total)) + total
    return value.new_empty([size + more for size, more in zip(value.shape, added, strict=True)])
