"""Plan, build, time, correct: widths whose network is as much faster as asked, measured before anything is solved."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor

from ldrf.calibration.network import Network
from ldrf.config import milliseconds
from ldrf.deployment.deployed import Deployed
from ldrf.deployment.latency import Latency, LayerTime
from ldrf.deployment.stopwatch import Timed
from ldrf.errors import LdrfError
from ldrf.planning.allocation import reachable
from ldrf.planning.latency_model import LatencyModel, latency_model
from ldrf.planning.time_allocation import allocate_by_time
from ldrf.units.targets import Target
from ldrf.units.width_choices import Choices

ABOVE = 1.03  # how far above what was asked a measured ratio may lie
AIM = 1.015  # and where it should
ROUNDS = 10  # networks built and timed, at most
CLOSE = 1.003  # plans nearer than that are the same
EXPECTED = (1.25, 1.5, 2.0, 2.5, 3.0, 4.0)  # ratios whose estimated error is told

Allocate = Callable[[LatencyModel, float], dict[str, int]]


@dataclass(frozen=True)
class Trial:
    """One plan on the clock: the ratio that the tables were asked for, the widths, and what was measured."""

    planned: float
    widths: dict[str, int]
    timed: Timed

    @property
    def ratio(self) -> float:
        return self.timed.ratio()


def asked_ratio(target: Target, deployed: Deployed) -> float:
    """Dense time / slim time, also where a time was asked for."""
    if target.time is None:
        return target.ratio
    dense, asked = 1000 * deployed.dense_seconds, milliseconds(target.time)
    if asked >= dense:
        raise LdrfError(
            f"The 'latency' must be below the dense model's {dense:.3g} ms ({_where(deployed)}). Got {target.time!r}."
        )
    return dense / asked


def needs_coupled(network: Network, choices: Choices, target: Target, deployed: Deployed) -> bool:
    """Whether the network with every unit at its smallest width is too slow, on the clock."""
    smallest = {name: widths[0] for name, widths in choices.items()}
    return deployed.time_cut(network.units, smallest).ratio() < asked_ratio(target, deployed)


def plan_by_latency(
    network: Network,
    target: Target,
    choices: Choices,
    deployed: Deployed,
    curves: Mapping[str, Tensor] | None,
    allocate: Allocate | None = None,
) -> tuple[dict[str, int], Latency]:
    """Widths whose network reaches the target on the clock, and what was measured of it.

    ``allocate`` finds widths for a ratio; by default they are those of the least error by ``curves``.
    """
    ratio = asked_ratio(target, deployed)
    model = latency_model(network.trace, network.units, choices, deployed)
    plan = allocate or (lambda model, ratio: allocate_by_time(model, ratio, curves or {}, choices))
    trial = _corrected(network, choices, deployed, model, plan, ratio)
    return trial.widths, _record(deployed, model, trial, _expected(model, choices, curves))


def _corrected(
    network: Network, choices: Choices, deployed: Deployed, model: LatencyModel, plan: Allocate, ratio: float
) -> Trial:
    """The slowest network on the clock that is still fast enough, asked of the tables again and again."""
    most = reachable(model, choices)
    below: Trial | None = None
    above: Trial | None = None
    planned = min(ratio * AIM, most)
    for _ in range(ROUNDS):
        widths = plan(model, planned)
        trial = Trial(planned, widths, deployed.time_cut(network.units, widths))
        if trial.ratio < ratio:
            if planned >= most:
                raise _out_of_reach(deployed, model, trial, ratio)
            below = trial
        elif above is None or trial.ratio <= above.ratio:
            above = trial
        if above is not None and (above.ratio <= ratio * ABOVE or _stuck(below, above)):
            return above
        planned = min(_next(below, above, ratio * AIM), most)
    if above is None:
        raise LdrfError(
            f"No plan reached a latency {ratio:g} times lower in {ROUNDS} rounds; the last was measured at "
            f"{below.ratio if below else 1:.2f}: ask for a little less."
        )
    return above


def _stuck(below: Trial | None, above: Trial) -> bool:
    """Whether there is no plan between the two."""
    return below is not None and (above.planned / below.planned < CLOSE or above.widths == below.widths)


def _next(below: Trial | None, above: Trial | None, aim: float) -> float:
    """What to ask of the tables so that the clock shows ``aim``."""
    if below is None or above is None:
        last = below or above
        assert last is not None
        return max(last.planned * aim / last.ratio, 1.001)
    low, high = math.log(below.planned), math.log(above.planned)
    rise = math.log(above.ratio / below.ratio)
    share = math.log(aim / below.ratio) / rise if rise > 0 else 0.5
    return math.exp(low + (high - low) * min(max(share, 0.15), 0.85))


def _out_of_reach(deployed: Deployed, model: LatencyModel, trial: Trial, ratio: float) -> LdrfError:
    fixed = model.untouched
    share = sum(layer.at(model.full) for layer in fixed) / model.at({})
    slowest = sorted(fixed, key=lambda layer: -layer.at(model.full))[:3]
    names = ", ".join(layer.name for layer in slowest) + (", ..." if len(fixed) > 3 else "")
    held = f"{share:.0%} of the time is in layers that keep their width: {names}" if fixed else "all layers can shrink"
    rest = model.fixed / model.at({})
    return LdrfError(
        f"A latency {ratio:.3g} times lower is out of reach: the largest measured ratio, with every unit at its "
        f"smallest width, is {trial.ratio:.2f} ({_where(deployed)}). {held}; {rest:.0%} is outside of layers. Ask for "
        "less, lower the energy, or set coupled=True if widths are left that residual sums tie together."
    )


def _where(deployed: Deployed) -> str:
    d = deployed.deployment
    return f"{d.runtime}, batch {d.batch}, {d.threads} thread{'s' if d.threads > 1 else ''}"


def _expected(
    model: LatencyModel, choices: Choices, curves: Mapping[str, Tensor] | None
) -> tuple[tuple[float, float], ...]:
    """Estimated error of the outputs at other ratios, as far as the tables reach."""
    if curves is None:
        return ()
    most, pairs = reachable(model, choices), []
    for ratio in EXPECTED:
        if ratio <= most:
            widths = allocate_by_time(model, ratio, curves, choices)
            pairs.append((ratio, sum(float(curves[name][width]) for name, width in widths.items())))
    return tuple(pairs)


def _record(
    deployed: Deployed, model: LatencyModel, trial: Trial, expected: tuple[tuple[float, float], ...]
) -> Latency:
    times = [
        LayerTime(layer.name, 1000 * layer.at(model.full), 1000 * layer.at({**model.full, **trial.widths}))
        for layer in model.layers
    ]
    return Latency(
        runtime=str(deployed.deployment.runtime),
        version=str(deployed.runtime.version()),
        batch=deployed.deployment.batch,
        threads=deployed.deployment.threads,
        dense=1000 * trial.timed.seconds["dense"],
        slim=1000 * trial.timed.seconds["slim"],
        scatter=trial.timed.scatter,
        layers=tuple(times),
        expected=expected,
    )
