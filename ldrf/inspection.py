"""Look before cutting: what of a network can be pruned, what hangs together, and why the rest cannot."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from ldrf.calibration.finding_parts import whole_or_parts
from ldrf.calibration.network import Network, read_network, with_coupled
from ldrf.config import Deployment, PruneConfig
from ldrf.deployment.deployed import deploy
from ldrf.errors import LdrfError
from ldrf.planning.allocation import reachable
from ldrf.planning.objectives.speedup import network_macs
from ldrf.planning.plan import choices_of
from ldrf.planning.ranks import unit_ranks, unit_spectra
from ldrf.planning.time_view import TimeView, time_view
from ldrf.runtime.device import Device
from ldrf.runtime.tables import table
from ldrf.units.targets import Ignore
from ldrf.units.unit import Skipped, Unit, left_alone


@dataclass(frozen=True)
class UnitView:
    """One unit: its neurons, the layers that make, carry and read them, and the MACs that depend on its width."""

    name: str
    width: int
    smallest: int  # the width below which it is not cut: its rank, or what its groups need
    together: tuple[str, ...]  # layers whose outputs are cut with it
    readers: tuple[str, ...]
    macs: float
    coupled: bool


@dataclass(frozen=True)
class Inspection:
    """What can be cut in a network, and what each layer that is left alone is left alone for."""

    units: tuple[UnitView, ...]
    skipped: tuple[Skipped, ...]
    macs: int
    share: float  # of the MACs that lie in layers a unit can shrink
    speedup: float  # the largest, every unit at its smallest width
    coupled_share: float  # both with coupled widths cut too
    coupled_speedup: float
    energy: float = PruneConfig.energy  # at which the ranks are taken
    time: TimeView | None = None  # where the time goes, if that was asked for
    parts: tuple[str, ...] = ()  # the submodules that were looked at, where the whole was not traced

    def as_dict(self) -> dict[str, Any]:
        return {
            "macs": self.macs,
            "energy": self.energy,
            "prunable_share": self.share,
            "largest_speedup": self.speedup,
            "prunable_share_coupled": self.coupled_share,
            "largest_speedup_coupled": self.coupled_speedup,
            "units": [vars(u) for u in self.units],
            "skipped": [vars(s) for s in self.skipped],
            "parts": list(self.parts),
            "time": None if self.time is None else self.time.as_dict(),
        }

    def __str__(self) -> str:
        rows = [
            (_marked(u), u.width, u.smallest, f"{u.macs / self.macs:.1%}", _listed(u.together), _listed(u.readers))
            for u in self.units
        ]
        heads = ("unit", "neurons", "at least", "MACs", "cut with it", "read by")
        note = f"At least: the rank at energy {self.energy:g}, in the steps that widths come in."
        lines = [self.headline(), "", table(heads, rows), "", note]
        lines += [f"MACs are those of the whole model; looked at in it: {', '.join(self.parts)}."] if self.parts else []
        lines += [] if self.time is None else ["", str(self.time)]
        return "\n".join([*lines, *left_alone(self.skipped)])

    def headline(self) -> str:
        text = (
            f"{self.share:.0%} of {self.macs / 1e6:,.1f} M MACs lie in layers that can shrink; "
            f"the largest speedup is {self.speedup:.2f}x"
        )
        if self.coupled_speedup <= self.speedup * 1.005:
            return f"{text}."
        return f"{text}; with coupled widths {self.coupled_share:.0%}, and {self.coupled_speedup:.2f}x."


def _marked(unit: UnitView) -> str:
    return f"{unit.name} (coupled)" if unit.coupled else unit.name


def _listed(names: tuple[str, ...], most: int = 3) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


def inspect(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    ignore: Ignore = (),
    parts: Sequence[str] | None = None,
    config: PruneConfig | None = None,
    deployment: Deployment | None = None,
    device: Device | None = None,
) -> Inspection:
    """Trace ``model`` on a batch and say what could be pruned; nothing is changed or solved.

    It is run on ``device``, by default where the model is. With a ``deployment`` its layers are timed there, too, to
    say where the time goes. ``parts`` are those of :func:`ldrf.prune`.
    """
    config = config or PruneConfig()
    network = _read(model, batches, parts, ignore, config, device)
    if network.whole is not None and deployment is not None:
        raise LdrfError("Time is that of a whole model: with parts, inspect without deployment= (--time).")
    inspection = inspect_network(network, config)
    if deployment is None:
        return inspection
    _, choices = _limits(network, config)
    return replace(inspection, time=time_view(network, choices, deploy(model, network.example, deployment)))


def _read(
    model: nn.Module,
    batches: Iterable[Any],
    parts: Sequence[str] | None,
    ignore: Ignore,
    config: PruneConfig,
    device: Device | None,
) -> Network:
    """The model as a network, or the parts of it that prune would cut."""

    def read(model: nn.Module, batches: Iterable[Any], ignore: Ignore) -> Network:
        return read_network(model, batches, ignore, config, device=device)

    network, of = whole_or_parts(model, batches, parts, ignore, read)
    return network if of is None else replace(network, whole=of.whole)


def inspect_network(network: Network, config: PruneConfig) -> Inspection:
    """The same for a network that is traced already."""
    total = network.macs if network.whole is None else network.whole.macs
    full, choices = _limits(network, config)
    views = []
    for unit in network.units:
        touched = sum(t.factor * _span(t.units, full.full) for t in full.terms if unit.name in t.units)
        together = [layer.name for layer in unit.partners] + _carriers(unit)
        readers = tuple(c.layer.name for c in unit.consumers)
        names = tuple(dict.fromkeys(together))
        views.append(UnitView(unit.name, unit.width, choices[unit.name][0], names, readers, touched, unit.coupled))
    best = reachable(full, choices)
    wider, limits = _limits(with_coupled(network), config) if network.coupled else (full, choices)
    share, coupled_share = (1 - cost.fixed / total if total else 0.0 for cost in (full, wider))
    parts = () if network.whole is None else tuple(network.whole.times)
    shares = (share, best, coupled_share, reachable(wider, limits))
    return Inspection(tuple(views), network.skipped, total, *shares, config.energy, parts=parts)


def _limits(network: Network, config: PruneConfig) -> Any:
    """The cost model and the widths that each unit may have."""
    cost = network_macs(network)
    spectra = unit_spectra(network.model, network.units)
    return cost, choices_of(network.units, unit_ranks(network.units, spectra, config.energy), config)


def _span(units: tuple[str, ...], widths: dict[str, int]) -> int:
    size = 1
    for unit in units:
        size *= widths[unit]
    return size


def _carriers(unit: Unit) -> list[str]:
    return [piece.tensor.rpartition(".")[0] or piece.tensor for piece in unit.slices]
