"""The fastest network that loses no more than a number of points: a few prunes that share what was learned first."""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from ldrf.calibration.network import Network
from ldrf.calibration.parts import PartsOf
from ldrf.config import Deployment
from ldrf.errors import LdrfError, LdrfWarning, OutOfReach
from ldrf.inputs import main_output
from ldrf.measuring.agreement import met
from ldrf.recomposition.whole import with_parts
from ldrf.result import PruneResult, Tried
from ldrf.run import Run, begin_run
from ldrf.runtime.device import model_device
from ldrf.runtime.processes import sum_over
from ldrf.saving.journal import open_journal
from ldrf.units.targets import Target

Evaluate = Callable[[nn.Module], float]

FIRST = 2.0  # the ratio that is tried first
GROWTH = 1.6  # how much more is asked for while all goes well
FINE = 1.06  # ratios nearer than that are not told apart
PRUNES = 6  # networks tried, at most
LEAST = 1.1  # the mildest that is tried


@dataclass(frozen=True)
class Judge:
    """How many points a network loses against the dense one: of a score of the user's, or of agreement with it."""

    network: Network
    evaluate: Evaluate | None
    dense: float

    def drop(self, slim: nn.Module) -> float:
        if self.evaluate is not None:
            return self.dense - _score(self.evaluate, slim)
        return 100 - agreement(self.network, slim)


def judge(network: Network, evaluate: Evaluate | None) -> Judge:
    """The judge of slim networks, which has looked at the dense one."""
    return Judge(network, evaluate, 100.0 if evaluate is None else _score(evaluate, network.model))


def _score(evaluate: Evaluate, model: nn.Module) -> float:
    mode = model.training
    try:
        score = evaluate(model.eval())
    finally:
        model.train(mode)
    if isinstance(score, bool) or not isinstance(score, int | float | Tensor) or not math.isfinite(float(score)):
        raise LdrfError(f"The function 'evaluate' must give a finite number of points. Got {score!r} instead.")
    return float(score)


@torch.no_grad()
def agreement(network: Network, slim: nn.Module) -> float:
    """Percent of the held-out images with the dense model's first guess; without scores [batch, classes], the percent
    of the outputs' variance that is met."""
    total = torch.zeros(2, dtype=torch.float64)
    modes = [(model, model.training) for model in (network.model, slim)]
    try:
        for model, _ in modes:
            model.eval()
        for i in network.calibration.own(sorted(network.calibration.held_out)):
            chunk = network.calibration.chunks[i].to(model_device(slim))  # which is where the model is
            total += met(main_output(chunk.call(slim)), main_output(chunk.call(network.model)))
    finally:
        for model, mode in modes:
            model.train(mode)
    good, all_of_it = sum_over(total).tolist()
    return 100 * good / max(all_of_it, 1e-30)


@dataclass(frozen=True)
class Budget:
    """At most ``max_drop`` points may go; what is won for them is time in ``deployment``, or MACs."""

    max_drop: float
    evaluate: Evaluate | None
    deployment: Deployment | None

    @property
    def first(self) -> Target:
        """What is tried first."""
        return self.target(FIRST)

    def of_parts(self, of: PartsOf) -> "Budget":
        """The same budget of points of the whole model, where its parts are what is pruned."""
        check_parts(self)
        return replace(self, evaluate=of_whole(self.evaluate, of))

    def target(self, ratio: float) -> Target:
        if self.deployment is not None:
            return Target("latency", ratio, deployment=self.deployment)
        return Target("speedup", ratio)

    def fastest(self, run: Run, pruned: Callable[[Run], PruneResult]) -> PruneResult:
        """The result of the largest ratio that stays within the budget; ``run`` is the first that is tried."""
        judged = judge(run.start.network, self.evaluate)
        if self.evaluate is None:
            _warn_of_few(run.start.network, self.max_drop)
        tried: list[Tried] = []
        best: PruneResult | None = None
        low, high, ratio = 1.0, math.inf, FIRST
        while len(tried) < PRUNES and high > low * FINE and ratio >= LEAST:
            result = self._reached(run, ratio, pruned)
            drop = math.inf if result is None else judged.drop(result.model)
            tried.append(Tried(ratio, None if result is None else drop))
            run.tell("tried", ratio=ratio, drop=tried[-1].drop, kept=drop <= self.max_drop)
            if result is not None and drop <= self.max_drop:
                low, best = ratio, result
            else:
                high = ratio
            ratio = low * GROWTH if high == math.inf else math.sqrt(low * high)
        if best is None:
            raise LdrfError(_none_within(self.max_drop, tried))
        return replace(best, tried=tuple(tried), target={"max_drop": self.max_drop, **best.target})

    def _reached(self, run: Run, ratio: float, pruned: Callable[[Run], PruneResult]) -> PruneResult | None:
        """The network at this ratio, or None where there is none."""
        try:
            return pruned(begin_run(run.start, self.target(ratio), open_journal(None, False)))
        except OutOfReach:
            return None


def check_parts(budget: Budget) -> None:
    """Raise where a budget of points cannot be that of a whole model, of which parts are pruned."""
    if budget.evaluate is None or budget.deployment is not None:
        raise LdrfError(
            "With parts, max_drop= needs evaluate=, a function that scores the whole model, and no deployment=."
        )


def of_whole(evaluate: Evaluate | None, of: PartsOf | None) -> Evaluate | None:
    """The same score of the whole model, for its parts."""
    if evaluate is None or of is None:
        return evaluate
    return lambda parts: evaluate(with_parts(of, parts).eval())


def _none_within(max_drop: float, tried: list[Tried]) -> str:
    mildest = tried[-1]
    lost = "is out of reach" if mildest.drop is None else f"loses {mildest.drop:.2f}"
    return (
        f"No slim network loses at most {max_drop:g} points: the mildest that was tried, {mildest.ratio:.2f} times "
        f"cheaper, {lost}. Allow more, or calibrate on more images."
    )


def _warn_of_few(network: Network, max_drop: float) -> None:
    calibration = network.calibration
    images = sum(calibration.sizes[i] for i in calibration.held_out)
    if 100 / max(images, 1) > max_drop / 2:
        warnings.warn(
            f"{images} held-out images tell {100 / max(images, 1):.2g} points apart, which is coarse for "
            f"max_drop={max_drop:g}: give more images, or a function evaluate=.",
            LdrfWarning,
            stacklevel=4,
        )


def read_budget(max_drop: Any, evaluate: Any, deployment: Deployment | None) -> Budget | None:
    """The budget that a call of prune names, if it names one."""
    if max_drop is None:
        if evaluate is not None:
            raise LdrfError("The function 'evaluate' goes with max_drop=, which was not given.")
        return None
    if isinstance(max_drop, bool) or not isinstance(max_drop, int | float) or not 0 <= max_drop < 100:
        raise LdrfError(f"The 'max_drop' must be a number of points from 0 to below 100. Got {max_drop!r} instead.")
    if evaluate is not None and not callable(evaluate):
        raise LdrfError(f"'evaluate' must be a function of the model. Got {type(evaluate).__name__} instead.")
    return Budget(float(max_drop), cast("Evaluate | None", evaluate), deployment)


def check_alone(**targets: Any) -> None:
    """Raise where a target is named beside the budget."""
    named = [f"{name}=" for name, value in targets.items() if value is not None]
    if named:
        raise LdrfError(f"With max_drop= the ratio is what is looked for. Got {' and '.join(named)} beside it.")


def check_not_resumed(resume: bool) -> None:
    """Raise where a search is to go on: only the network that it ends with is kept."""
    if resume:
        raise LdrfError("A search by max_drop= cannot be resumed: start it again, or use ldrf.sweep (ldrf sweep).")
