"""Norms and other calls with one number of the model for each channel, which is cut with the channels."""

from typing import Any

import numpy as np
from torch import fx

from ldrf.channels.flow import Arriving, Channels, Flow, Rule, Slice, first, module_of, rank_before, unknown, where
from ldrf.channels.tensors import cut_along
from ldrf.tracing.operations import bound_args, operation


def per_channel(*tensors: str, dim: int = 1) -> Rule:
    """The rule of a call that works on each channel by itself, with numbers of the model for each.

    ``tensors`` are names of arguments that hold one number for each channel; ``dim`` is the dimension of the channels,
    negative if counted from the last. Channels that lie elsewhere keep their number.
    """

    def rule(flow: Flow, node: fx.Node, arriving: Arriving) -> Channels | None:
        given, arguments = first(arriving), bound_args(node)
        operands = [arguments[name] for name in tensors if isinstance(arguments.get(name), fx.Node)]
        lies_there = len(arriving) == 1 and given.dim == dim % node.meta["val"].ndim
        if not lies_there or not all(cut_along(flow, operand, 0, given.ids) for operand in operands):
            return unknown(flow, node, arriving)
        return given

    return rule


def cut_with(flow: Flow, tensors: Any, ids: np.ndarray) -> None:
    """Note that these arguments are tensors of the model with one number for each channel, where they are."""
    for operand in tensors:
        if isinstance(operand, fx.Node) and operand.name in flow.trace.names:
            flow.slices.append(Slice(flow.trace.names[operand.name], 0, ids))


def batch_norm(flow: Flow, node: fx.Node, arriving: Arriving) -> Channels | None:
    """A BatchNorm that could not be folded: its four tensors are cut with the channels."""
    given = first(arriving)
    if given.dim != 1 or len(arriving) > 1:
        return unknown(flow, node, arriving)
    cut_with(flow, node.args[1:5], given.ids)
    return given


def instance_norm(flow: Flow, node: fx.Node, arriving: Arriving) -> Channels | None:
    """Each channel is normalised by itself; the module keeps their number, which is the width."""
    given = per_channel("weight", "bias", "running_mean", "running_var")(flow, node, arriving)
    if isinstance(given, Channels):
        flow.stated.append((module_of(node), len(given.ids), given.ids))
        return given
    return None


def layer_norm(flow: Flow, node: fx.Node, arriving: Arriving) -> Channels | None:
    """A norm over other dimensions leaves channels alone; one over the channels alone is cut with them."""
    given, rank = first(arriving), rank_before(node)
    sizes: Any = node.args[1]
    if given.dim < rank - len(sizes):
        return given
    if len(sizes) > 1 or len(arriving) > 1:
        return unknown(flow, node, arriving)
    cut_with(flow, node.args[2:4], given.ids)
    return given


def group_norm(flow: Flow, node: fx.Node, arriving: Arriving) -> Channels | None:
    """Every group keeps as many channels as the others: those at the same place of each group become one neuron."""
    given = first(arriving)
    args: Any = node.args
    native = operation(node) == "aten.native_group_norm"
    groups, tensors = (args[6], args[1:3]) if native else (args[1], args[2:4])
    if given.dim != 1 or len(arriving) > 1 or not isinstance(groups, int):
        return unknown(flow, node, arriving)
    table = given.ids.reshape(groups, -1)
    ids = given.ids
    if 1 < groups < len(ids):
        flow.tie(table, table[:1], f"its outputs are normalised{where(node)} together with others")
        ids = np.tile(table[0], groups)
    elif groups == len(ids) > 1:  # the number of groups, which is the width, is written in the module
        flow.stated.append((module_of(node), groups, ids))
    if all(size == 1 for size in args[0].meta["val"].shape[2:]):  # torch refuses a group of a single value
        flow.freeze(ids, f"its outputs are normalised{where(node)} in groups that could be left with one value")
    cut_with(flow, tensors, ids)
    return Channels(1, ids)


def prelu(flow: Flow, node: fx.Node, arriving: Arriving) -> Channels | None:
    """A slope for all channels, or one for each, which is cut with them."""
    given = first(arriving)
    weight: Any = node.args[1]
    if weight.meta["val"].numel() > 1:
        if given.dim != 1 and operation(node) == "aten.prelu":
            return unknown(flow, node, arriving)
        cut_with(flow, [weight], given.ids)
    return given
