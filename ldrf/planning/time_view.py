"""Where the time of a dense network goes, and how many neurons each ratio would leave: a look before cutting."""

from dataclasses import asdict, dataclass
from typing import Any

from ldrf.calibration.network import Network
from ldrf.deployment.deployed import Deployed
from ldrf.planning.allocation import allocate_by_share, reachable
from ldrf.planning.latency_model import latency_model
from ldrf.runtime.tables import table
from ldrf.units.width_choices import Choices

RATIOS = (1.25, 1.5, 2.0, 3.0, 4.0)


@dataclass(frozen=True)
class TimedLayer:
    """Milliseconds of one dense layer with its activation, and whether a unit can shrink it."""

    name: str
    milliseconds: float
    shrinks: bool


@dataclass(frozen=True)
class TimeView:
    """A dense network's time where it will run, layer by layer; ratios are estimated from tables of its layers."""

    runtime: str
    batch: int
    threads: int
    milliseconds: float
    layers: tuple[TimedLayer, ...]
    largest: float  # dense time / slim time with every unit at its smallest width
    kept: tuple[tuple[float, float], ...]  # (ratio, share of the neurons it leaves if all units give the same share)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"kept": [list(pair) for pair in self.kept]}

    def __str__(self) -> str:
        rows = [(x.name, f"{x.milliseconds:.3f}", self._share(x.milliseconds), _word(x.shrinks)) for x in self.layers]
        rest = self.milliseconds - sum(x.milliseconds for x in self.layers)
        rows.append(("all else", f"{rest:.3f}", self._share(rest), "no"))
        heads = ("layer", "ms", "time", "shrinks")
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        where = f"{self.milliseconds:.3g} ms in {self.runtime}, batch {self.batch}, {threads}"
        kept = ", ".join(f"{share:.0%} of the neurons at {ratio:g}x" for ratio, share in self.kept)
        left = f" Left at the same share everywhere: {kept}." if kept else ""
        return f"{table(heads, rows)}\n\n{where}; the largest ratio is about {self.largest:.2f}x.{left}"

    def _share(self, milliseconds: float) -> str:
        return f"{milliseconds / self.milliseconds:.1%}"


def _word(shrinks: bool) -> str:
    return "yes" if shrinks else "no"


def time_view(network: Network, choices: Choices, deployed: Deployed) -> TimeView:
    """Time the dense network and its layers, and say what the tables promise."""
    model = latency_model(network.trace, network.units, choices, deployed)
    largest, neurons = reachable(model, choices), sum(model.full.values())
    kept = []
    for ratio in RATIOS:
        if ratio <= largest:
            kept.append((ratio, sum(allocate_by_share(model, ratio, choices).values()) / neurons))
    d = deployed.deployment
    layers = tuple(TimedLayer(la.name, 1000 * la.at(model.full), bool(la.units)) for la in model.layers)
    return TimeView(str(d.runtime), d.batch, d.threads, 1000 * model.at({}), layers, largest, tuple(kept))
