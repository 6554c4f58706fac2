"""What is cut together: producing layers, everything their channels pass through, and the layers that read them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ldrf.channels.attention_scores import Scores
from ldrf.channels.walk import Slice, layer_tensors
from ldrf.runtime.tables import printable
from ldrf.tracing.trace import Layer

QUOTED = re.compile(r"'[^']*'")


@dataclass(frozen=True)
class Consumer:
    """A layer that reads a unit's channels; ``channels[i]`` is the neuron behind its i-th input, or -1."""

    layer: Layer
    channels: np.ndarray
    other: str | None  # the value its output is added to, where it closes a residual branch
    sum: str | None  # and the node of that sum
    activation: str | None  # the activation that alone reads the result
    outputs: np.ndarray | None = None  # dense outputs that are left, where earlier cuts took some
    outputs_now: np.ndarray | None = None  # and which of those the cut at hand leaves, where it takes more

    @property
    def goal(self) -> str:
        """The node whose dense value the consumer is to restore: its own result, or the sum it goes into."""
        return self.sum or self.layer.result


@dataclass(frozen=True)
class Attribute:
    """A whole number that a module keeps, such as its count of heads, which shrinks with a unit."""

    module: str
    name: str
    full: int


@dataclass(frozen=True)
class Unit:
    """``width`` neurons that can be cut, with the layer that makes them and all tensors that shrink along.

    A neuron is one output of ``producer``, or several that must go together: those of one group, or of all parts of a
    split. Where other layers' outputs are added to or multiplied with them, these ``partners`` shrink along.
    """

    name: str
    width: int
    producer: Layer
    consumers: tuple[Consumer, ...]
    slices: tuple[Slice, ...]  # tensors of carriers and partners; their ids are neurons of this unit
    start: int  # graph position of the producer
    end: int  # graph position of the last call its reconstruction looks at
    neuron_of_output: np.ndarray  # of the producer
    partners: tuple[Layer, ...] = ()
    tables: tuple[str, ...] = ()  # embeddings whose columns are its neurons, too
    coupled: bool = False  # its layers meet in sums, as those of a residual stream do
    work: float = 0.0  # MACs per example outside layers, as in attention, that go with its width
    stated: tuple[tuple[str, int], ...] = ()  # (module, size) of calls that write its width out
    attributes: tuple[Attribute, ...] = ()  # numbers of such modules that are to follow its width
    scores: tuple[Scores, ...] = ()  # where its neurons are queries and keys that are compared

    @property
    def compared(self) -> Scores | None:
        """The scores that its neurons go into as queries and keys, if that is one place and its heads are known."""
        return self.scores[0] if len(self.scores) == 1 and self.scores[0].heads is not None else None

    @property
    def makers(self) -> tuple[str, ...]:
        """Names of all that makes its neurons: layers, and embeddings."""
        return (self.producer.name, *(layer.name for layer in self.partners), *self.tables)

    @property
    def layers(self) -> tuple[str, ...]:
        return (self.producer.name, *(c.layer.name for c in self.consumers))


@dataclass(frozen=True)
class Skipped:
    """A layer that keeps its width, and why."""

    name: str
    reason: str


def left_alone(skipped: Sequence[Skipped]) -> list[str]:
    """Lines that tell which layers keep their width, and why; none where all were cut."""
    if not skipped:
        return []
    head = "1 layer keeps its width:" if len(skipped) == 1 else f"{len(skipped)} layers keep their width:"
    alike: dict[str, list[Skipped]] = {}
    for skip in skipped:
        alike.setdefault(QUOTED.sub("", skip.reason), []).append(skip)
    return ["", head, *(printable(f"  {_listed(some)}: {_shared_reason(some)}") for some in alike.values())]


def _listed(skipped: Sequence[Skipped], most: int = 3) -> str:
    """The first names, and how many more."""
    names = ", ".join(skip.name for skip in skipped[:most])
    return names if len(skipped) <= most else f"{names} and {len(skipped) - most} more"


def _shared_reason(skipped: Sequence[Skipped]) -> str:
    """The reason of layers whose reasons differ at most in the names that they quote."""
    reasons = {skip.reason for skip in skipped}
    if len(reasons) == 1:
        return skipped[0].reason
    kinds = {re.sub(r"\d+", "*", reason) for reason in reasons}
    return kinds.pop() if len(kinds) == 1 else QUOTED.sub("another layer", skipped[0].reason)


def tied(other: str) -> str:
    return f"its outputs are added to or multiplied with those of '{other}', so their widths are tied"


def left_coupled(unit: Unit) -> list[Skipped]:
    """What is said of the layers of a coupled unit that is not cut."""
    names = unit.makers
    return [Skipped(n, f"{tied(next(o for o in names if o != n))} (coupled=True cuts them together)") for n in names]


def row_slices(layer: Layer, rows: np.ndarray) -> list[Slice]:
    """A layer's tensors along its outputs."""
    return [Slice(name, layer.row_dim if name == layer.weight else 0, rows) for name in layer_tensors(layer)]
