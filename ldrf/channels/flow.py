"""What is known of a network's channels: which value carries which, which are one neuron, and which are frozen.

Every output of a layer gets an id. Ids that must stay or go together are tied; ids that meet something that is not
understood are frozen with a reason a person can read.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from torch import fx

from ldrf.channels.attention_scores import Scores
from ldrf.tracing.operations import operation
from ldrf.tracing.operator_table import operator_of
from ldrf.tracing.trace import Layer, Trace

FIXED = -1  # in a list of ids: a place that no channel belongs to, so it always stays
BATCH = 10007  # stands for a free size: a prime, so that no product of others equals it


@dataclass(frozen=True)
class Channels:
    """Which channel each index of one dimension of a value belongs to."""

    dim: int
    ids: np.ndarray


Arriving = dict[str, Channels]  # value -> its channels, for the arguments of a call that have some


@dataclass(frozen=True)
class Slice:
    """A tensor whose dimension ``dim`` is indexed by these channels, so it is cut with them."""

    tensor: str
    dim: int
    ids: np.ndarray


@dataclass
class Flow:
    """What the walk found: produced ids, consuming layers, tensors to cut, ties and frozen ids."""

    trace: Trace
    outer: Mapping[str, int] = field(default_factory=dict)  # view that splits channels -> which of its parts shrinks
    packed: bool = False  # whether queries and keys may lose width that their values lose with them
    compared: list[tuple[Scores, np.ndarray]] = field(default_factory=list)  # queries and keys that end there
    gated: list[tuple[str, np.ndarray]] = field(default_factory=list)  # calls of recurrent layers that ids end in
    produced: dict[str, np.ndarray] = field(default_factory=dict)
    consumed: list[tuple[Layer, np.ndarray]] = field(default_factory=list)
    slices: list[Slice] = field(default_factory=list)
    frozen: list[tuple[np.ndarray, str]] = field(default_factory=list)
    summed: list[np.ndarray] = field(default_factory=list)  # ids that met others in a sum
    split: dict[str, tuple[np.ndarray, int]] = field(default_factory=dict)  # such a view -> ids, number of parts
    stated: list[tuple[str, int, np.ndarray]] = field(default_factory=list)  # (module, size it wrote, ids it counts)
    tables: list[tuple[str, np.ndarray]] = field(default_factory=list)  # embeddings, and the ids of their columns
    work: list[tuple[float, np.ndarray]] = field(default_factory=list)  # MACs of a product of values, and its ids
    # Of a call: where channels lie in its first argument and in its result, and the model's tensor that it moves.
    channel_dims: dict[str, tuple[int, int]] = field(default_factory=dict)
    cut_along: dict[str, str] = field(default_factory=dict)
    computed: dict[str, tuple[int, np.ndarray]] = field(default_factory=dict)  # from the model's tensors: dim and ids
    parents: list[int] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)  # Channels, or a list of them for a call with several results

    @property
    def followed(self) -> Trace:
        """The trace with what this walk learned, so that it runs with the channels cut that the walk followed."""
        return replace(self.trace, channel_dims=self.channel_dims, cut_along=self.cut_along)

    def note_dims(self, node: fx.Node, arriving: "Arriving", result: "Channels | list[Channels] | None") -> None:
        """Remember where channels lie before and after a call whose arguments state sizes."""
        operator, source = operator_of(node), node.all_input_nodes[0].name
        if operator and operator.sizes and source in arriving and result is not None:
            after = result[0] if isinstance(result, list) else result
            self.channel_dims[node.name] = arriving[source].dim, after.dim

    def fresh(self, count: int) -> np.ndarray:
        first = len(self.parents)
        self.parents.extend(range(first, first + count))
        return np.arange(first, first + count)

    def root(self, channel: int) -> int:
        while self.parents[channel] != channel:
            self.parents[channel] = self.parents[self.parents[channel]]
            channel = self.parents[channel]
        return channel

    def roots(self, ids: np.ndarray) -> np.ndarray:
        """The id that stands for each one's neuron; fixed places stay fixed."""
        different, places = np.unique(ids, return_inverse=True)
        roots = [self.root(i) if i >= 0 else FIXED for i in different.tolist()]
        return np.array(roots, dtype=np.int64)[places.reshape(np.shape(ids))]

    def tie(self, left: np.ndarray, right: np.ndarray, why: str) -> None:
        """Make pairs of channels one neuron; a channel that meets a fixed place is frozen for the reason given."""
        left, right = (np.ravel(a) for a in np.broadcast_arrays(left, right))
        loose = (left < 0) != (right < 0)
        if loose.any():
            self.freeze(np.maximum(left, right)[loose], why)
        apart = (left >= 0) & (right >= 0) & (left != right)
        for a, b in set(zip(left[apart].tolist(), right[apart].tolist(), strict=True)):
            self.parents[self.root(b)] = self.root(a)

    def freeze(self, ids: np.ndarray, reason: str) -> None:
        self.frozen.append((ids[ids >= 0], reason))


Rule = Callable[[Flow, fx.Node, Arriving], Channels | list[Channels] | None]


def extents(node: Any) -> tuple[int, ...]:
    """Sizes of a node's value, with ``BATCH`` for a free batch size."""
    return tuple(size if isinstance(size, int) else _stand_in(size) for size in node.meta["val"].shape)


def _stand_in(size: Any) -> int:
    expression = size.node.expr
    return int(expression.subs(dict.fromkeys(expression.free_symbols, BATCH)))


def module_of(node: fx.Node) -> str:
    """The path of the module that makes a call."""
    stack = node.meta.get("nn_module_stack") or {}
    return str(list(stack.values())[-1][0]).partition("@")[0] if stack else ""


def where(node: fx.Node) -> str:
    """The module that makes a call, as the end of a sentence."""
    path = module_of(node)
    return f" in '{path}'" if path else ""


def unknown(flow: Flow, node: fx.Node, arriving: Arriving) -> None:
    """No rule fits: whatever arrives keeps its number."""
    name = operation(node).removeprefix("aten.")
    for channels in arriving.values():
        flow.freeze(channels.ids, f"its outputs pass through '{name}'{where(node)}, which mixes or reorders them")


def first(arriving: Arriving) -> Channels:
    """The channels of the first argument that has some."""
    return next(iter(arriving.values()))


def rank_before(node: fx.Node) -> int:
    """Number of dimensions of the value that a call reads first."""
    return node.all_input_nodes[0].meta["val"].ndim


def named_dim(node: fx.Node, place: int, rank: int, default: int = 0) -> int:
    """The dimension that a call names in this argument or as ``dim``, counted from the first of ``rank``."""
    args: Any = node.args
    named: Any = args[place] if len(args) > place else node.kwargs.get("dim", default)
    return int(named) % rank
