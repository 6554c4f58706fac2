"""A model where it will run: the dense network and networks cut to other widths, timed whole."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import nn

from ldrf.config import Deployment
from ldrf.deployment.cache import TimeCache, open_cache
from ldrf.deployment.runtime import Prepared, Runtime, find_runtime, installed_runtimes
from ldrf.deployment.stopwatch import Timed, check_quiet, time_in_turns
from ldrf.errors import LdrfError, first_line
from ldrf.inputs import Inputs, repeated
from ldrf.runtime.device import CPU
from ldrf.runtime.processes import from_first
from ldrf.tracing.export import working_copy
from ldrf.units.branches import Branch, left_out
from ldrf.units.indices import covering, surviving
from ldrf.units.left_out import leave_out
from ldrf.units.module_surgery import cut_plainly
from ldrf.units.unit import Unit

LOOK = 1.0  # seconds to look at a runtime, where it is to be chosen
CAREFUL = 5.0  # seconds of each network where it counts: what else the machine does changes within seconds


@dataclass(frozen=True)
class Deployed:
    """A model in a runtime that is known; only the first of several processes runs and times anything."""

    model: nn.Module  # in eval mode, and nobody else's
    inputs: Inputs  # as many examples as a batch has
    deployment: Deployment

    @property
    def runtime(self) -> Runtime:
        return find_runtime(str(self.deployment.runtime))

    @cached_property
    def dense(self) -> Prepared:
        return self.runtime.prepare(self.model, self.inputs, self.deployment.threads)

    @cached_property
    def dense_seconds(self) -> float:
        """Seconds of one call of the dense network."""
        return from_first(lambda: self._time({"dense": self.dense})).seconds["dense"]

    def time_cut(
        self,
        units: tuple[Unit, ...],
        widths: Mapping[str, int],
        branches: tuple[Branch, ...] = (),
        careful: bool = False,
    ) -> Timed:
        """The dense network and one with these widths, in turns; for longer if ``careful``.

        ``branches`` whose widths are 0 are left out of it.
        """
        gone, least = left_out(branches, widths), CAREFUL if careful else 0.0
        return from_first(lambda: self._time({"dense": self.dense, "slim": self._cut(units, widths, gone)}, least))

    def _cut(self, units: tuple[Unit, ...], widths: Mapping[str, int], gone: tuple[Branch, ...]) -> Prepared:
        """A network of these widths: which neurons stay does not matter to the clock."""
        there = tuple(unit for unit in units if widths[unit.name])
        kept = {unit.name: covering(unit, torch.arange(widths[unit.name])) for unit in there}
        slim = copy.deepcopy(self.model)
        cut_plainly(slim, there, kept)
        leave_out(slim, (stand_in for branch in gone for stand_in in branch.stand_ins))
        quick = None if gone else self.dense.cut(slim, surviving(there, kept))
        return quick or self.runtime.prepare(slim, self.inputs, self.deployment.threads)

    def _time(self, networks: Mapping[str, Prepared], least: float = 0.0) -> Timed:
        calls = {name: network.call for name, network in networks.items()}
        return check_quiet(time_in_turns(calls, self.deployment.threads, self.runtime.clock, least=least))

    def cache(self) -> TimeCache:
        """What was measured before of layers in this runtime."""
        d = self.deployment
        return open_cache(str(d.runtime), str(self.runtime.version()), d.batch, d.threads)


def deploy(model: nn.Module, example: Inputs, deployment: Deployment) -> Deployed:
    """The model in the runtime asked for, or in the fastest that is installed."""
    _check_dtype(model)
    copied, inputs = working_copy(model, CPU), repeated(example.to(CPU), deployment.batch)
    _check_batch(copied, inputs, example)
    if deployment.runtime is not None:
        find_runtime(deployment.runtime)
        return Deployed(copied, inputs, deployment)
    return replace(from_first(lambda: _fastest(copied, inputs, deployment)), model=copied, inputs=inputs)


def _fastest(model: nn.Module, inputs: Inputs, deployment: Deployment) -> Deployed:
    """The model in the runtime in which one call takes least; runtimes that cannot take it are left out."""
    seconds: dict[str, float] = {}
    problems: list[str] = []
    for name in installed_runtimes():
        runtime = find_runtime(name)
        try:
            prepared = runtime.prepare(model, inputs, deployment.threads)
        except LdrfError as problem:
            problems.append(str(problem))
            continue
        timed = time_in_turns({name: prepared.call}, deployment.threads, runtime.clock, LOOK)
        seconds[name] = timed.seconds[name]
    if not seconds:
        raise LdrfError(f"No runtime can take {type(model).__name__}: {problems[0]}")
    name = min(seconds, key=lambda n: seconds[n])
    return Deployed(nn.Module(), inputs, replace(deployment, runtime=name))


def _check_dtype(model: nn.Module) -> None:
    kinds = {p.dtype for p in model.parameters() if p.is_floating_point()} - {torch.float32}
    if kinds:
        raise LdrfError(
            f"Latency can be asked of float32 models. Got one in {kinds.pop()}: prune a float32 copy, model.float()."
        )


def _check_batch(model: nn.Module, inputs: Inputs, example: Inputs) -> None:
    try:
        with torch.no_grad():
            inputs.call(model)
    except Exception as problem:
        hint = f" (it takes {example.rows}: use Deployment(batch={example.rows}))" if example.fixed else ""
        raise LdrfError(
            f"{type(model).__name__} cannot take a batch of {inputs.rows}{hint}: {first_line(problem)}"
        ) from problem
