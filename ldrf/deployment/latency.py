"""What was measured of a network's time, dense and slim: the whole, and what its layers take of it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ldrf.runtime.tables import table


@dataclass(frozen=True)
class LayerTime:
    """Milliseconds of one layer with its activation, timed by itself at its dense and its slim width."""

    name: str
    dense: float
    slim: float


@dataclass(frozen=True)
class Latency:
    """Milliseconds of one call, dense and slim, where the network will run; and where they go."""

    runtime: str
    version: str
    batch: int
    threads: int
    dense: float
    slim: float
    scatter: float  # standard error of the ratio, as a share of it
    layers: tuple[LayerTime, ...]
    expected: tuple[tuple[float, float], ...] = ()  # (ratio, estimated error of the outputs) of other plans

    @property
    def ratio(self) -> float:
        return self.dense / self.slim

    @property
    def rest(self) -> tuple[float, float]:
        """Milliseconds outside of the layers, dense and slim."""
        return self.dense - sum(x.dense for x in self.layers), self.slim - sum(x.slim for x in self.layers)

    @property
    def where(self) -> str:
        """The runtime and how it is used, in words."""
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        return f"{self.runtime} {self.version}, batch {self.batch}, {threads}"

    def headline(self) -> str:
        return f"{self.ratio:.2f}x faster ({self.dense:.3g} ms -> {self.slim:.3g} ms) in {self.where}"

    def __str__(self) -> str:
        rows = [_row(x.name, x.dense, x.slim, self.dense) for x in self.layers]
        rows.append(_row("all else", *self.rest, self.dense))
        text = table(("layer", "dense ms", "share", "slim ms", "faster"), rows)
        if not self.expected:
            return f"{text}\n\n{self.headline()}"
        costs = ", ".join(f"{error:.3g} at {ratio:g}x" for ratio, error in self.expected)
        return f"{text}\n\n{self.headline()}\nEstimated error of the outputs: {costs}"

    def as_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return {**asdict(self), "expected": [list(pair) for pair in self.expected], "ratio": self.ratio}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> "Latency":
        """The way back from :meth:`as_dict`."""
        fields = {name: record[name] for name in ("runtime", "version", "batch", "threads", "dense", "slim", "scatter")}
        layers = tuple(LayerTime(x["name"], x["dense"], x["slim"]) for x in record["layers"])
        return cls(**fields, layers=layers, expected=tuple((ratio, error) for ratio, error in record["expected"]))


def _row(name: str, dense: float, slim: float, whole: float) -> tuple[str, str, str, str, str]:
    faster = f"{dense / slim:.2f}x" if dense > 0 and slim > 0 else "-"
    return name, f"{dense:.3f}", f"{dense / whole:.0%}", f"{slim:.3f}", faster
