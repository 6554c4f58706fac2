"""What a run hands back: the slim model and everything worth knowing about how it came to be."""

import platform
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ldrf._version import __version__
from ldrf.config import OWN_SETTINGS, FinetuneConfig, PruneConfig
from ldrf.deployment.latency import Latency
from ldrf.inputs import Inputs
from ldrf.planning.plan import CurvesOf
from ldrf.recomposition.best import HeldOut
from ldrf.reconstruction.unit_solver import Reconstruction
from ldrf.runtime.device import CPU, device_name
from ldrf.runtime.tables import table
from ldrf.units.unit import Skipped, Unit, left_alone

LEFT = "left as it was"  # of units that nothing was done to
Measure = Literal["accuracy", "agreement", "fidelity"]


@dataclass(frozen=True)
class UnitReport:
    """One unit's story: widths, rank, and held-out error before and after reconstruction."""

    name: str
    full: int
    width: int
    rank: int
    cut_error: float
    error: float
    way: str

    @property
    def range(self) -> tuple[int, int]:
        return self.rank, self.full

    @property
    def told_way(self) -> str:
        """How it was solved, in words: what keeps all its neurons and weights is not called cut."""
        return LEFT if self.way == "cut" and self.width == self.full else self.way

    @classmethod
    def of(cls, unit: Unit, width: int, rank: int, solved: Reconstruction) -> "UnitReport":
        return cls(unit.name, unit.width, width, rank, solved.cut_error, solved.error, solved.way)


@dataclass(frozen=True)
class Computed:
    """Where a run computed: the device, the images that it ran at a time, and the most bytes it took there.

    ``halvings`` counts how often that number was halved because the device ran out of memory. The CPU does not count
    its bytes.
    """

    device: str
    chunk: int
    halvings: int
    peak_bytes: int | None


@dataclass(frozen=True)
class Tried:
    """One network on the way to a budget: its ratio, and the points it lost; None where the ratio is out of reach."""

    ratio: float
    drop: float | None


@dataclass(frozen=True)
class PruneResult:
    """A slim model of the user's own class, with its costs and history."""

    model: nn.Module
    widths: dict[str, int]
    full_widths: dict[str, int]
    ranks: dict[str, int]
    spectra: dict[str, Tensor]  # singular values of each unit's weight, the largest first
    curves: dict[str, Tensor]  # estimated error of each unit at every width [n + 1]
    curves_of: CurvesOf
    skipped: tuple[Skipped, ...]
    history: tuple[UnitReport, ...]
    macs: tuple[int, int]
    parameters: tuple[int, int]
    images: int
    target: dict[str, Any]
    config: PruneConfig
    seconds: dict[str, float]
    versions: dict[str, str]
    example: Inputs
    """One calibration example, so that the model can be exported; a saved result keeps only its shapes."""
    method: str = "ldrf"
    attributes: dict[str, int] = field(default_factory=dict)  # numbers of modules that follow a width, by name
    held_out: HeldOut | None = None  # how the whole network was judged; None of a rival method
    checksums: dict[str, str] = field(default_factory=dict)  # of weights and inputs, where out= was given
    computed: Computed | None = None
    latency: Latency | None = None  # what the clock said of these widths, where a latency was asked for
    tried: tuple[Tried, ...] = ()  # the way to a budget of points, where one was given
    parts: tuple[str, ...] = ()  # the submodules that were pruned within the whole, where that was not traced
    finetune: dict[str, Any] | None = None  # how the model was fine-tuned since, where it was loaded so

    @property
    def seed(self) -> int:
        return self.config.seed

    @property
    def speedup(self) -> float:
        """Dense MACs / slim MACs of the whole model."""
        return self.macs[0] / self.macs[1]

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        solved = {h.name: (f"{h.cut_error:.4f}", f"{h.error:.4f}", h.told_way) for h in self.history}
        rows = [
            (
                name,
                full,
                self.widths[name],
                rank,
                f"({rank}, {full}]",
                *solved.get(name, ("", "", self._unsolved(name))),
            )
            for name, full in self.full_widths.items()
            for rank in (self.ranks[name],)
        ]
        heads = (
            "unit",
            "neurons",
            "kept",
            f"rank at {self.config.energy:g}",
            "range",
            "error cut",
            "error",
            "solved by",
        )
        lines = [self.headline()]
        if self.held_out is not None:
            lines += [self._judgement(self.held_out)]
        if self.parts:
            lines += [f"MACs and parameters are those of the whole model; pruned in it: {', '.join(self.parts)}."]
        lines += ["", f"method: {self.method}", "", table(heads, rows), *self._memory()]
        return "\n".join([*lines, *left_alone(self.skipped)])

    def _unsolved(self, name: str) -> str:
        return LEFT if self.widths[name] else "left out with its branch"

    def headline(self) -> str:
        (dense, slim), (before, after) = self.macs, self.parameters
        faster = f"{self.latency.headline()}, " if self.latency is not None else ""
        return (
            f"{faster}{self.speedup:.2f}x fewer MACs ({dense / 1e6:,.1f} M -> {slim / 1e6:,.1f} M), "
            f"{before / after:.2f}x fewer parameters ({before:,} -> {after:,})"
        )

    def _judgement(self, errors: HeldOut) -> str:
        if errors.returned == "cut":
            return f"Plain cutting did better on held-out images and is what is returned (error {errors.cut:.4f})."
        before = f"{errors.unit_by_unit:.4f} unit by unit, " if errors.unit_by_unit > errors.reconstructed else ""
        error = f"Error of the outputs on held-out images: {errors.reconstructed:.4f}"
        return f"{error} ({before}{errors.cut:.4f} if only cut)"

    def _memory(self) -> list[str]:
        """A line where the run went on an accelerator, and with how many images at a time."""
        done = self.computed
        if done is None or done.peak_bytes is None:
            return []
        less = " (fewer than asked for, as it ran out of memory)" if done.halvings else ""
        size = f"at most {done.peak_bytes / 2**20:,.0f} MiB"
        return ["", f"Computed on {done.device}: {size}, {done.chunk} images at a time{less}."]

    def as_dict(self) -> dict[str, Any]:
        """Everything but the tensors, ready for JSON; of the settings, those that the method reads."""
        unread = () if self.method == "ldrf" else OWN_SETTINGS
        return {
            "method": self.method,
            "target": self.target,
            "speedup": self.speedup,
            "widths": self.widths,
            "full_widths": self.full_widths,
            "ranks": self.ranks,
            "attributes": self.attributes,
            "skipped": [asdict(s) for s in self.skipped],
            "history": [asdict(h) for h in self.history],
            "held_out": None if self.held_out is None else asdict(self.held_out),
            "macs": {"dense": self.macs[0], "slim": self.macs[1]},
            "parameters": {"dense": self.parameters[0], "slim": self.parameters[1]},
            "latency": None if self.latency is None else self.latency.as_dict(),
            "tried": [asdict(trial) for trial in self.tried],
            "parts": list(self.parts),
            "config": {name: value for name, value in asdict(self.config).items() if name not in unread},
            "seed": self.seed,
            "images": self.images,
            "checksums": self.checksums,
            "inputs": self.example.described(),
            "seconds": self.seconds,
            "versions": self.versions,
            "computed": None if self.computed is None else asdict(self.computed),
            **({} if self.finetune is None else {"finetune": self.finetune}),
        }

    def details(self) -> dict[str, Any]:
        """The spectra and error curves of all units to five digits, ready for JSON; too long for :meth:`as_dict`."""
        return {
            "spectra": {name: _short(spectrum) for name, spectrum in self.spectra.items()},
            "curves": {name: _short(curve) for name, curve in self.curves.items()},
            "curves_of": self.curves_of,
        }


def _short(values: Tensor) -> list[float]:
    return [float(f"{value:.5g}") for value in values.tolist()]


@dataclass(frozen=True)
class Epoch:
    """One pass over the images: mean loss, held-out score and distance afterwards, learning rate at its start."""

    epoch: int
    loss: float
    score: float
    distance: float
    rate: float
    seconds: float


@dataclass(frozen=True)
class FinetuneResult:
    """The best model found, its held-out score before and after, and the curve in between."""

    model: nn.Module
    measure: Measure
    began: float
    ended: float
    best_epoch: int  # 0 where no epoch was better than the start
    epochs: tuple[Epoch, ...]
    images: tuple[int, int]  # trained on, judged on
    config: FinetuneConfig
    versions: dict[str, str]
    example: Inputs
    pruned: dict[str, Any]
    """What is known of how the slim model came to be, as :meth:`ldrf.PruneResult.as_dict` tells it."""

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        rows = [
            (e.epoch, f"{e.loss:.4f}", f"{e.score:.2%}", f"{e.distance:.4f}", f"{e.rate:.2g}", f"{e.seconds:.0f}")
            for e in self.epochs
        ]
        heads = ("epoch", "loss", self.measure, "distance", "rate", "seconds")
        return f"{table(heads, rows)}\n\n{self.headline()}"

    def headline(self) -> str:
        trained, judged = self.images
        nearest = "" if self.measure == "accuracy" else ", the nearest to the dense outputs"
        best = f"at epoch {self.best_epoch} of {len(self.epochs)}{nearest}"
        where = best if self.best_epoch else "no epoch was better"
        return (
            f"{self.measure} {self.began:.2%} -> {self.ended:.2%} on {judged:,} held-out images ({where}; "
            f"trained on {trained:,})"
        )

    def as_dict(self) -> dict[str, Any]:
        """Everything but the tensors, ready for JSON."""
        tuned = {
            "measure": self.measure,
            "began": self.began,
            "ended": self.ended,
            "best_epoch": self.best_epoch,
            "epochs": [asdict(e) for e in self.epochs],
            "images": {"trained": self.images[0], "judged": self.images[1]},
            "config": asdict(self.config),
            "versions": self.versions,
        }
        return {**self.pruned, "finetune": tuned}


def versions(device: torch.device = CPU) -> dict[str, str]:
    """What the run was made with, and on which device."""
    made = {"ldrf": __version__, "torch": torch.__version__, "python": platform.python_version()}
    return {**made, "device": device_name(device)}
