"""One call of ``prune`` from its arguments to its result: what is checked first, noted on the way, and handed back."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor, nn

from ldrf.calibration.finding_parts import whole_or_parts
from ldrf.calibration.network import Network, check_prunable, read_network, smaller_chunks
from ldrf.calibration.parts import PartsOf
from ldrf.calibration.store import ActivationStore
from ldrf.config import PruneConfig, byte_count
from ldrf.deployment.deployed import Deployed, deploy
from ldrf.deployment.gain import warn_of_small_gain
from ldrf.effort import EFFORTS
from ldrf.errors import LdrfError, first_line
from ldrf.events import OnEvent, teller
from ldrf.files.checksums import fingerprint
from ldrf.inputs import Inputs
from ldrf.methods.shared.method import Method, take_labels
from ldrf.planning.findings import Findings
from ldrf.planning.objectives.speedup import network_macs
from ldrf.planning.plan import for_target
from ldrf.planning.ranks import unit_ranks
from ldrf.recomposition.best import Chosen
from ldrf.recomposition.whole import check_whole, with_parts
from ldrf.reconstruction.unit_solver import Reconstruction, find_solver
from ldrf.registry import METHODS
from ldrf.result import Computed, PruneResult, UnitReport, versions
from ldrf.runtime.device import Device, OutOfMemory, device_name, find_device, peak_bytes, reset_peak
from ldrf.runtime.processes import agreed, is_first
from ldrf.runtime.progress import Clock, progress
from ldrf.saving import checkpoint
from ldrf.saving.journal import Journal
from ldrf.tracing.counting import count_macs, count_parameters
from ldrf.tracing.wrappers import unwrapped
from ldrf.units.indices import Kept, stated_sizes
from ldrf.units.targets import Ignore, Target, exact_widths, warn_of_odd_widths
from ldrf.units.unit import Unit

T = TypeVar("T")


@dataclass(frozen=True)
class Start:
    """What runs towards several targets share: the traced network, the method, and what is learned of the units."""

    network: Network
    method: Method
    config: PruneConfig
    labels: Tensor | None  # [images], where the method asks for them
    known: dict[Any, Any] | None = None  # by what it is and for which units; None where a single run forgets it at once

    def once(self, what: Any, make: Callable[[], T], units: tuple[Unit, ...] = ()) -> T:
        """What ``make`` gives, made once for these units where several targets follow."""
        if self.known is None:
            return make()
        key = what, tuple(unit.name for unit in units)
        if key not in self.known:
            self.known[key] = make()
        return self.known[key]


@dataclass(frozen=True)
class Run:
    """What a run works on, and where it notes what happens: its journal, its clock, and who listens."""

    start: Start
    network: Network  # with coupled widths among its units, where the target needs them
    target: Target
    spectra: dict[str, Tensor]  # singular values of each unit's weight, the largest first
    ranks: dict[str, int]  # z_l of each unit (Eqn. 5)
    journal: Journal
    clock: Clock
    tell: Callable[..., None]
    deployed: Deployed | None = None  # where a latency is to be reached that is not planned yet
    history: dict[int, UnitReport] = field(default_factory=dict)  # by the unit's number
    known: dict[int, Reconstruction] = field(default_factory=dict)  # solutions so far, for another try

    @property
    def method(self) -> Method:
        return self.start.method

    @property
    def config(self) -> PruneConfig:
        return self.start.config

    def once(self, what: str, make: Callable[[], T]) -> T:
        """What ``make`` says of this run's units, made once for all targets."""
        return self.start.once(what, make, self.network.units)

    @property
    def for_units(self) -> Network:
        """The network with those of the images that widths and single units are found on."""
        return replace(self.network, calibration=self.network.calibration.first(self.config.unit_images))

    @property
    def full_widths(self) -> dict[str, int]:
        return {unit.name: unit.width for unit in self.network.units}

    def learned(self, learn: Callable[["Run"], Findings]) -> Findings:
        """What stage 1 finds, from the journal if it had come to its end."""
        findings = self.journal.findings() or self.journal.keep_findings(learn(self))
        self.clock("plan")
        self.tell("planned", widths=dict(findings.plan.widths), full_widths=self.full_widths)
        return replace(findings, labels=self.start.labels)

    def units(self) -> Iterator[tuple[int, Unit]]:
        """The units in forward order, with their number."""
        yield from enumerate(progress(self.network.units, "reconstruct"))

    def solved(self, index: int, unit: Unit, solve: Callable[[], Reconstruction]) -> Reconstruction:
        """A unit's solution, from the journal if it was found before."""
        if index in self.known:
            return self.known[index]
        solved = self.journal.solved(index, unit) or self.journal.keep_solved(index, unit, agreed(solve()))
        self.known[index] = solved
        self.history[index] = UnitReport.of(unit, len(solved.kept), self.ranks[unit.name], solved)
        self.tell("unit", index=index, count=len(self.network.units), **asdict(self.history[index]))
        return solved

    def store(self) -> ActivationStore:
        """Room for activations: on the device and in memory within their budgets, beyond them in the run's folder."""
        network, memory = self.network, byte_count(self.config.memory)
        on_device = network.room(self.config) if network.device.type != "cpu" else 0
        return ActivationStore(network.calibration.room(memory), self.journal.spill, network.device, on_device)

    def with_room(self, stage: Callable[["Run"], T]) -> tuple["Run", T]:
        """What a stage gives; where its device runs out of memory, it is done again with fewer images at a time."""
        run = self
        while True:
            try:
                return run, stage(run)
            except OutOfMemory as problem:
                reason = first_line(problem)
            network = run.network  # here the failed stage's tensors are gone
            calibration = smaller_chunks(network.calibration, network.device, reason)
            run = replace(run, network=replace(network, calibration=calibration))

    def _computed(self) -> Computed:
        device, calibration = self.network.device, self.network.calibration
        return Computed(device_name(device), max(calibration.sizes), calibration.halvings, peak_bytes(device))

    def finished(self, slim: nn.Module, best: Chosen, kept: Kept, findings: Findings) -> PruneResult:
        """The result, once the slim model is made and verified."""
        self.clock("recompose")
        self.tell("recomposed", seconds=dict(self.clock.seconds))
        network, plan = self.network, findings.plan
        return PruneResult(
            model=slim,
            widths={name: len(neurons) if plan.widths[name] else 0 for name, neurons in kept.items()},
            full_widths=self.full_widths,
            ranks=self.ranks,
            spectra=self.spectra,
            curves=plan.curves,
            curves_of=plan.curves_of,
            skipped=network.skipped,
            history=tuple(self.history.values()),
            macs=(network.macs, count_macs(slim, network.example)),
            parameters=(count_parameters(network.model), count_parameters(slim)),
            images=network.calibration.examples,
            target=self.target.as_dict(),
            config=self.config,
            seconds=self.clock.seconds,
            versions=versions(network.device),
            computed=self._computed(),
            example=network.example.first(1).map(lambda t: t.clone()),
            method=self.method.name,
            attributes=stated_sizes(network.units, kept),
            held_out=best.held_out,
            checksums=self.journal.checksums or {"weights": fingerprint(network.model.state_dict().items())},
            latency=plan.latency,
        )


def read_start(
    model: nn.Module,
    batches: Iterable[Any],
    ignore: Ignore,
    method: str,
    config: PruneConfig,
    device: Device | None = None,
    several: bool = False,
) -> Start:
    """Trace the model and say what can be cut; with ``several``, what is learned of it is kept for more targets."""
    reset_peak(find_device(device, model))
    rule, unit_images = METHODS.find(method), config.unit_images
    config = replace(config, allocation=config.allocation or rule.allocation).filled()
    batches, labels = take_labels(rule, unwrapped(model), batches)
    network = read_network(model, batches, ignore, config, True, device)
    check_prunable(network)
    if unit_images is None:
        config = replace(config, unit_images=_unit_images(rule, config))
    return Start(network, rule, config, labels, {} if several else None)


def _unit_images(rule: Method, config: PruneConfig) -> int | None:
    """Images that widths and single units are found on: few where steps follow in which all units see all, else all.

    A closed form found on all images fits them too well: the steps after it would see no image that is new to it.
    """
    steps_follow = config.steps_together and rule.repairs_all and find_solver(config).together
    return EFFORTS[config.effort].unit_images if steps_follow else None


def read_whole_or_parts(
    model: nn.Module,
    batches: Iterable[Any],
    parts: Sequence[str] | None,
    ignore: Ignore,
    method: str,
    config: PruneConfig,
    device: Device | None = None,
    several: bool = False,
) -> tuple[Start, PartsOf | None]:
    """The model as a network; or the named parts of it as one, and what is around them."""

    def read(model: nn.Module, batches: Iterable[Any], ignore: Ignore) -> Start:
        return read_start(model, batches, ignore, method, config, device, several)

    start, of = whole_or_parts(model, batches, parts, ignore, read)
    return start if of is None else replace(start, network=replace(start.network, whole=of.whole)), of


def begin_run(
    start: Start, target: Target, journal: Journal, clock: Clock | None = None, on_event: OnEvent | None = None
) -> Run:
    """A run towards a target: units, spectra and ranks, and the runtime in which a latency is asked for."""
    clock, tell = clock or Clock(), teller(on_event)
    network, config = start.network, start.config
    if network.whole is not None and target.deployment is not None:
        raise LdrfError("A latency is that of a whole model: with parts, ask for speedup=, params=, widths= or keep=.")
    if config.uniform and target.deployment is not None:
        raise LdrfError("uniform=True does not go with a latency: ask for speedup=, params= or objective=.")
    journal.begin(network, target, start.method.name, config, start.labels)
    planned, where = journal.findings(), target.deployment
    deployed = None
    if where and not planned:
        deployed = start.once(where, lambda: deploy(network.model, network.example, where))
        tell("deployed", **asdict(deployed.deployment))
    network, spectra = for_target(network, target, config, deployed, planned.plan.widths if planned else None)
    # A wrong name is told before the work.
    exact_widths(target, network.units, network.skipped, branches=network.branches)
    warn_of_odd_widths(target, network.units, config.multiple)
    clock("trace")
    tell("traced", units=[unit.name for unit in network.units], skipped=[s.name for s in network.skipped])
    ranks = unit_ranks(network.units, spectra, config.energy)
    return Run(start, network, target, spectra, ranks, journal, clock, tell, deployed)


def put_back(result: PruneResult, run: Run, of: PartsOf) -> PruneResult:
    """The result with the whole model around its slim parts, at the costs of the whole."""
    slim = with_parts(of, result.model)
    check_whole(of, slim)
    macs = network_macs(run.network).at(result.widths)
    return replace(
        result,
        model=slim,
        macs=(of.whole.macs, round(macs)),
        parameters=(of.whole.parameters, count_parameters(slim)),
        checksums={**result.checksums, "weights": fingerprint(of.model.state_dict().items())},
        example=_one(of.example),
        parts=tuple(of.whole.times),
    )


def _one(inputs: Inputs) -> Inputs:
    """The first example of the inputs of a whole model; of a list of images, the first."""

    def first(value: Any) -> Any:
        return value[:1] if isinstance(value, Tensor | list | tuple) else value

    return Inputs(tuple(map(first, inputs.args)), {key: first(value) for key, value in inputs.kwargs.items()})


def hand_out(result: PruneResult, run: Run, out: str | Path | None, of: PartsOf | None = None) -> PruneResult:
    """The result, with the whole model around its parts, saved in ``out`` if that is given."""
    network, handed = run.network, result if of is None else put_back(result, run, of)
    if out is not None:
        checkpoint.save(handed, out, force=True)  # what may be replaced was checked before the work
    if run.target.objective == "speedup" and is_first():
        warn_of_small_gain(network.model, result.model, network.example, result.speedup)
    run.tell("done", speedup=handed.speedup)
    return handed
