"""Sizes that a traced call states in its arguments, brought in line with maps that have fewer channels.

Each function here is the size rule of some operators: it gets a call that is about to run and returns the arguments
that change, by name.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, fx


@dataclass(frozen=True)
class Call:
    """A traced call and the arguments it is about to run with, which may have fewer channels than the traced ones."""

    node: fx.Node
    arguments: Mapping[str, Any]  # by the names in the operator's schema
    dims: tuple[int, int] | None  # where channels lie in its first argument and in its result; None without channels

    @property
    def first(self) -> Any:
        return next(iter(self.arguments.values()), None)

    def shrunk(self, size: int) -> int:
        """A size that counts channels, made smaller in the proportion in which their number has shrunk."""
        if self.dims is None:
            return size
        source: Any = self.node.all_input_nodes[0]
        return size * self.first.shape[self.dims[0]] // int(source.meta["val"].shape[self.dims[0]])

    def is_along_channels(self) -> bool:
        """Whether the dimension that the call names is that of the channels."""
        return self.dims is not None and int(self.arguments.get("dim", 0)) % self.first.ndim == self.dims[0]


SizeRule = Callable[[Call], dict[str, Any]]


def sizes_in(argument: str) -> SizeRule:
    """The rule of a view or an expand: the argument lists the sizes of the result, and that of the channels shrinks."""

    def rule(call: Call) -> dict[str, Any]:
        if call.dims is None:
            return {}
        sizes = list(call.arguments[argument])
        sizes[call.dims[1]] = call.shrunk(int(call.node.meta["val"].shape[call.dims[1]]))
        return {argument: sizes}

    return rule


def count_in(argument: str) -> SizeRule:
    """The rule of a call whose argument is a number of channels, or of whole groups of them."""

    def rule(call: Call) -> dict[str, Any]:
        return {argument: call.shrunk(call.arguments[argument])} if argument in call.arguments else {}

    return rule


def part_sizes(call: Call) -> dict[str, Any]:
    """A split along the channels: each part keeps its share."""
    if not call.is_along_channels():
        return {}
    if "split_sizes" in call.arguments:
        return {"split_sizes": [call.shrunk(size) for size in call.arguments["split_sizes"]]}
    sizes = call.arguments["split_size"]
    return {"split_size": [call.shrunk(s) for s in sizes] if isinstance(sizes, list | tuple) else call.shrunk(sizes)}


def slice_ends(call: Call) -> dict[str, Any]:
    """A slice of the channels: both ends move with their number."""
    if not call.is_along_channels():
        return {}
    assert call.dims is not None
    source: Any = call.node.all_input_nodes[0]
    traced = int(source.meta["val"].shape[call.dims[0]])
    ends = {name: call.arguments.get(name) for name in ("start", "end")}
    return {n: call.shrunk(end) for n, end in ends.items() if isinstance(end, int) and abs(end) <= traced}


def last_size(call: Call) -> dict[str, Any]:
    """A norm over the last dimension alone states its size."""
    return {"normalized_shape": [call.first.shape[-1]]} if len(call.arguments["normalized_shape"]) == 1 else {}


def norm_groups(call: Call) -> dict[str, Any]:
    """A group norm states its number of groups, which is that of the channels where each is a group of its own."""
    traced: Any = call.node.meta["val"]
    channels = int((traced[0] if isinstance(traced, list | tuple) else traced).shape[1])
    groups = {name: call.arguments[name] for name in ("num_groups", "group") if name in call.arguments}
    return {name: call.first.shape[1] for name, count in groups.items() if count == channels > 1}


def map_sizes(call: Call) -> dict[str, Any]:
    """A native group norm states the numbers of examples, of channels and of positions, too."""
    x = call.first
    return {"N": x.shape[0], "C": x.shape[1], "HxW": x[0, 0].numel(), **norm_groups(call)}


def narrowed(
    rule: SizeRule, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any], dims: tuple[int, int] | None
) -> tuple[list[Any], dict[str, Any]]:
    """Positional and named arguments of a call for the maps at hand; untouched where these have the traced width."""
    names = [argument.name for argument in node.target._schema.arguments]  # pyright: ignore
    call = Call(node, {**dict(zip(names, args, strict=False)), **kwargs}, dims)
    changed = rule(call) if isinstance(call.first, Tensor) else {}
    places = dict(zip(names, range(len(args)), strict=False))
    new = list(args)
    for name in changed.keys() & places.keys():
        new[places[name]] = changed[name]
    return new, {**kwargs, **{name: value for name, value in changed.items() if name not in places}}
