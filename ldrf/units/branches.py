"""Residual branches x + f(x) that a plan may leave out: their calls, the modules that make them, and their units."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

import torch
from torch import Tensor, fx, nn

from ldrf.tracing.interpreter import Constant, Weights
from ldrf.tracing.layer import Layer
from ldrf.tracing.operations import NORM, operation
from ldrf.tracing.trace import Trace
from ldrf.units.left_out import StandIn
from ldrf.units.unit import Unit

# What may come between the last module of a branch and the sum: a mean goes through it unchanged, or scaled.
LINEAR = {"aten.permute", "aten.transpose", "aten.clone", "aten.alias", "aten.mul", "aten.contiguous"}
VIEWS = {"aten.view", "aten.reshape", "aten._unsafe_view"}


@dataclass(frozen=True)
class Branch:
    """One branch f of a sum x + f(x), with what takes its place: the mean of f(x) per channel."""

    name: str  # of its last layer
    units: tuple[str, ...]  # all at width 0 where it is left out
    calls: frozenset[str]  # nodes that are not run then
    end: str  # the node whose value is the constant
    constant: Constant
    stand_ins: tuple[StandIn, ...]

    def is_left_out(self, widths: Mapping[str, int]) -> bool:
        known = [name for name in self.units if name in widths]
        return bool(known) and all(widths[name] == 0 for name in known)


def left_out(branches: Iterable[Branch], widths: Mapping[str, int]) -> tuple[Branch, ...]:
    """The branches that a plan with these widths leaves out."""
    return outermost(branch for branch in branches if branch.is_left_out(widths))


def outermost(branches: Iterable[Branch]) -> tuple[Branch, ...]:
    """The branches that lie in none of the others."""
    branches = tuple(branches)
    return tuple(b for b in branches if not any(b.end in other.calls for other in branches))


def without(weights: Weights, branches: Iterable[Branch]) -> Weights:
    """Weights of the network in which these branches are constants."""
    branches = tuple(branches)
    return replace(
        weights,
        constants={**weights.constants, **{branch.end: branch.constant for branch in branches}},
        idle=weights.idle.union(*(branch.calls for branch in branches)),
    )


def outside(unit: Unit, branches: Iterable[Branch]) -> Unit:
    """The unit without the consumers that lie in branches which are left out."""
    idle = frozenset().union(*(branch.calls for branch in branches))
    return replace(unit, consumers=tuple(c for c in unit.consumers if c.layer.node not in idle))


def residual_branches(
    trace: Trace, model: nn.Module, units: tuple[Unit, ...], protected: Collection[str]
) -> Iterator[Branch]:
    """Branches that modules make which do nothing else, and that have a unit; their constants are zeros still."""
    graph = _Graph.of(trace)
    for node in trace.nodes:
        if operation(node) == "aten.add" and len(node.all_input_nodes) == 2 and not node.kwargs:
            for last, shortcut in permutations(node.all_input_nodes):
                calls = graph.between(node, last, shortcut)
                branch = graph.branch(model, last, calls, units) if calls else None
                if branch and not any(_touches(s.module, protected) for s in branch.stand_ins):
                    yield branch


def _touches(module: str, protected: Collection[str]) -> bool:
    return any(name == module or name.startswith(f"{module}.") for name in protected)


@dataclass(frozen=True)
class _Graph:
    """A traced network with what depends on its inputs, and the calls that each module makes."""

    trace: Trace
    behind: frozenset[str]  # values that depend on the inputs, these included
    made_in: dict[str, frozenset[str]]  # module -> its calls and those of its children
    once: tuple[str, ...]  # modules that are called once, in order

    @classmethod
    def of(cls, trace: Trace) -> "_Graph":
        behind = set(trace.inputs)
        made_in: dict[str, set[str]] = {}
        paths: dict[str, set[str]] = {}
        for node in trace.nodes:
            if any(read.name in behind for read in node.all_input_nodes):
                behind.add(node.name)
            for path, _ in (node.meta.get("nn_module_stack") or {}).values():
                module = re.sub(r"@\d+", "", path)  # the second call of a module has another path
                made_in.setdefault(module, set()).add(node.name)
                paths.setdefault(module, set()).add(path)
        once = tuple(module for module, all_paths in paths.items() if module and len(all_paths) == 1)
        return cls(trace, frozenset(behind), {m: frozenset(calls) for m, calls in made_in.items()}, once)

    def between(self, total: fx.Node, last: fx.Node, shortcut: fx.Node) -> frozenset[str]:
        """All calls from ``shortcut`` to ``last``; none where they read or give anything else, or change the shape."""
        shapes = [getattr(node.meta.get("val"), "shape", None) for node in (total, last, shortcut)]
        before = self._before(shortcut)
        if shapes[0] is None or shapes != [shapes[0]] * 3 or last.name in before:
            return frozenset()
        calls: set[str] = set()
        queue = [last]
        while queue:
            node = queue.pop()
            calls.add(node.name)
            for read in node.all_input_nodes:
                if read.name in before and read is not shortcut and isinstance(read.meta.get("val"), Tensor):
                    return frozenset()
                if read.name in self.behind and read.name not in before and read.name not in calls:
                    queue.append(read)
        nodes = [self.trace.node(name) for name in calls]
        leaves = any(user.name not in calls and user is not total for node in nodes for user in node.users)
        return frozenset() if leaves or calls & set(self.trace.outputs) else frozenset(calls)

    def _before(self, node: fx.Node) -> set[str]:
        """A node, and all that it depends on and that depends on the inputs."""
        before, queue = set[str](), [node]
        while queue:
            node = queue.pop()
            if node.name in self.behind and node.name not in before:
                before.add(node.name)
                queue += node.all_input_nodes
        return before

    def branch(self, model: nn.Module, last: fx.Node, calls: frozenset[str], units: tuple[Unit, ...]) -> Branch | None:
        """The branch of these calls; None where no module ends it, or where nothing in it is a unit."""
        inside = [m for m in self.once if self.made_in[m] <= calls]
        modules = [m for m in inside if not any(m.startswith(f"{other}.") for other in inside)]
        end, behind = self._end(last, modules)
        found = None if end is None else self.channels(end)
        own = tuple(u.name for u in units if {u.producer.node, *(c.layer.node for c in u.consumers)} <= calls)
        if end is None or found is None or not own:
            return None
        layer, dim = found
        final = next(m for m in modules if end.name in self.made_in[m])
        holder = _holder(model, final, layer.outputs)
        earlier = [m for m in modules if m != final and not self.made_in[m] & behind]
        dims = {m: self._dim_behind(m) for m in earlier}
        if holder is None or None in dims.values() or _shared(model, [*earlier, final]):
            return None
        constant = Constant(torch.zeros(layer.outputs), dim, end.meta["val"].ndim, layer.weight)
        stand_ins = (*(StandIn(m, int(d or 0)) for m, d in dims.items()), StandIn(final, dim, holder))
        return Branch(layer.name, own, calls - behind - {end.name}, end.name, constant, stand_ins)

    def _end(self, last: fx.Node, modules: list[str]) -> tuple[fx.Node | None, set[str]]:
        """The last value that one of the modules gives, and the calls behind it."""
        node, behind = last, set[str]()
        while not any(node.name in self.made_in[m] for m in modules):
            read = [n for n in node.all_input_nodes if n.name in self.behind]
            if operation(node) not in LINEAR or len(read) != 1:
                return None, behind
            behind.add(node.name)
            node = read[0]
        calls = next(self.made_in[m] for m in modules if node.name in self.made_in[m])
        others = [name for name in calls - {node.name} if self._leaves(name, calls)]
        return (None if others else node), behind

    def _leaves(self, name: str, calls: frozenset[str]) -> bool:
        return any(user.name not in calls for user in self.trace.node(name).users)

    def _dim_behind(self, module: str) -> int | None:
        """The dimension of the channels in what a module gives."""
        calls = self.made_in[module]
        given = [self.trace.node(name) for name in calls if self._leaves(name, calls)]
        found = self.channels(given[0]) if len(given) == 1 else None
        return None if found is None else found[1]

    def channels(self, node: fx.Node) -> tuple[Layer, int] | None:
        """The layer whose outputs are the channels of a value, and the dimension they lie in."""
        layer = self.trace.layer_at.get(node.name)
        if layer is not None:
            return layer, layer.channel_dim % node.meta["val"].ndim
        read = [n for n in node.all_input_nodes if n.name in self.behind and n.op != "placeholder"]
        found = self.channels(read[0]) if read else None
        if found is None or operation(node) in ("getitem", NORM):
            return found
        return _moved(node, read[0].meta.get("val"), *found)


def _moved(node: fx.Node, before: Any, layer: Layer, dim: int) -> tuple[Layer, int] | None:
    """Where channels of dimension ``dim`` lie after a call."""
    after, kind = node.meta.get("val"), operation(node)
    if not isinstance(before, Tensor) or not isinstance(after, Tensor):
        return None
    if kind == "aten.permute":
        order: Any = node.args[1]
        return layer, [d % after.ndim for d in order].index(dim)
    if kind == "aten.transpose":
        one, other = (int(d) % after.ndim for d in node.args[1:3])  # pyright: ignore
        return layer, {one: other, other: one}.get(dim, dim)
    if kind in VIEWS and before.shape != after.shape:
        if before.shape[: dim + 1] == after.shape[: dim + 1]:
            return layer, dim
        same = dim == before.ndim - 1 and before.shape[-1] == after.shape[-1]
        return (layer, after.ndim - 1) if same else None
    return (layer, dim) if before.ndim == after.ndim and before.shape[dim] == after.shape[dim] else None


def _holder(model: nn.Module, module: str, outputs: int) -> str | None:
    """The tensor of a module that can keep a constant: its last bias, or else a weight."""
    own = [(f"{module}.{name}", p) for name, p in model.get_submodule(module).named_parameters()]
    for fits in (lambda p: p.ndim == 1, lambda p: p.ndim > 1):
        names = [name for name, p in own if fits(p) and len(p) == outputs]
        if names:
            return names[-1]
    return None


def _shared(model: nn.Module, modules: list[str]) -> bool:
    """Whether a tensor of these modules is used under another name, too."""
    named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    inside = {id(t) for name, t in named if any(name.startswith(f"{m}.") for m in modules)}
    count = sum(id(t) in inside for _, t in named)
    return count != len(inside)
