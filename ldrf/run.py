"""One call of ``prune`` from its arguments to its result: what is checked first, noted on the way, and handed back."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ldrf.calibration.network import Network, check_prunable, read_network
from ldrf.calibration.store import ActivationStore
from ldrf.config import PruneConfig, byte_count
from ldrf.events import OnEvent, teller
from ldrf.files.checksums import fingerprint
from ldrf.methods.shared.method import Method, take_labels
from ldrf.planning.findings import Findings
from ldrf.planning.plan import for_target
from ldrf.planning.ranks import unit_ranks
from ldrf.recomposition.best import Chosen
from ldrf.reconstruction.unit_solver import Reconstruction
from ldrf.registry import METHODS
from ldrf.result import PruneResult, UnitReport, versions
from ldrf.runtime.processes import agreed
from ldrf.runtime.progress import Clock, progress
from ldrf.saving import checkpoint
from ldrf.saving.journal import Journal, open_journal
from ldrf.tracing.counting import count_macs, count_parameters
from ldrf.tracing.wrappers import unwrapped
from ldrf.units.indices import Kept, stated_sizes
from ldrf.units.targets import Ignore, Target, exact_widths, warn_of_odd_widths
from ldrf.units.unit import Unit


@dataclass(frozen=True)
class Run:
    """What a run works on, and where it notes what happens: its journal, its clock, and who listens."""

    network: Network
    target: Target
    method: Method
    config: PruneConfig
    labels: Tensor | None  # [images], where the method asks for them
    spectra: dict[str, Tensor]  # singular values of each unit's weight, the largest first
    ranks: dict[str, int]  # z_l of each unit (Eqn. 5)
    journal: Journal
    clock: Clock
    tell: Callable[..., None]
    history: list[UnitReport] = field(default_factory=list)

    @property
    def full_widths(self) -> dict[str, int]:
        return {unit.name: unit.width for unit in self.network.units}

    def learned(self, learn: Callable[["Run"], Findings]) -> Findings:
        """What stage 1 finds, from the journal if it had come to its end."""
        findings = self.journal.findings() or self.journal.keep_findings(learn(self))
        self.clock("plan")
        self.tell("planned", widths=dict(findings.plan.widths), full_widths=self.full_widths)
        return replace(findings, labels=self.labels)

    def units(self) -> Iterator[tuple[int, Unit]]:
        """The units in forward order, with their number."""
        yield from enumerate(progress(self.network.units, "reconstruct"))

    def solved(self, index: int, unit: Unit, solve: Callable[[], Reconstruction]) -> Reconstruction:
        """A unit's solution, from the journal if it was found before."""
        solved = self.journal.solved(index, unit) or self.journal.keep_solved(index, unit, agreed(solve()))
        self.history.append(UnitReport.of(unit, len(solved.kept), self.ranks[unit.name], solved))
        self.tell("unit", index=index, count=len(self.network.units), **asdict(self.history[-1]))
        return solved

    def store(self) -> ActivationStore:
        """Room for activations: in memory within the budget, beyond it in the run's folder."""
        return ActivationStore(self.network.calibration.room(byte_count(self.config.memory)), self.journal.spill)

    def finished(self, slim: nn.Module, best: Chosen, kept: Kept, findings: Findings) -> PruneResult:
        """The result, once the slim model is made and verified."""
        self.clock("recompose")
        self.tell("recomposed", seconds=dict(self.clock.seconds))
        network, plan = self.network, findings.plan
        return PruneResult(
            model=slim,
            widths={name: len(neurons) for name, neurons in kept.items()},
            full_widths=self.full_widths,
            ranks=self.ranks,
            spectra=self.spectra,
            curves=plan.curves,
            curves_of=plan.curves_of,
            skipped=network.skipped,
            history=tuple(self.history),
            macs=(count_macs(network.model, network.example), count_macs(slim, network.example)),
            parameters=(count_parameters(network.model), count_parameters(slim)),
            images=network.calibration.examples,
            target=self.target.as_dict(),
            config=self.config,
            seconds=self.clock.seconds,
            versions=versions(),
            example=network.example.map(lambda t: t[:1].clone()),
            method=self.method.name,
            attributes=stated_sizes(network.units, kept),
            held_out=best.held_out,
            checksums=self.journal.checksums or {"weights": fingerprint(network.model.state_dict().items())},
        )


def begin_run(
    model: nn.Module,
    batches: Iterable[Any],
    target: Target,
    ignore: Ignore,
    method: str,
    config: PruneConfig,
    on_event: OnEvent | None,
    out: str | Path | None,
    resume: bool,
) -> Run:
    """Check all arguments, trace the model and say what can be cut."""
    journal, rule = open_journal(out, resume), METHODS.find(method)
    config = replace(config, allocation=config.allocation or rule.allocation)
    clock, tell = Clock(), teller(on_event)
    batches, labels = take_labels(rule, unwrapped(model), batches)
    network = read_network(model, batches, ignore, config, True)
    check_prunable(network)
    journal.begin(network, target, rule.name, config, labels)
    network, spectra = for_target(network, target, config)
    exact_widths(target, network.units, network.skipped)  # a wrong name is told before the work
    warn_of_odd_widths(target, network.units, config.multiple)
    clock("trace")
    tell("traced", units=[unit.name for unit in network.units], skipped=[s.name for s in network.skipped])
    ranks = unit_ranks(network.units, spectra, config.energy)
    return Run(network, target, rule, config, labels, spectra, ranks, journal, clock, tell)


def hand_out(result: PruneResult, run: Run, out: str | Path | None) -> PruneResult:
    """The result, saved in ``out`` if that is given."""
    if out is not None:
        checkpoint.save(result, out)
    run.tell("done", speedup=result.speedup)
    return result
