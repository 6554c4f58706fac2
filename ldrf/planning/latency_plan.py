"""Plan, build, time, correct: widths whose network is as much faster as asked, measured before anything is solved."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor

from ldrf.calibration.network import Network
from ldrf.config import milliseconds
from ldrf.deployment.deployed import Deployed
from ldrf.deployment.latency import Latency, LayerTime
from ldrf.deployment.stopwatch import Timed
from ldrf.errors import LdrfError, OutOfReach
from ldrf.planning.allocation import reachable
from ldrf.planning.depth_allocation import PricedBranch, allocate_with_depth, with_zeros
from ldrf.planning.latency_model import LatencyModel, latency_model
from ldrf.planning.time_allocation import allocate_by_time
from ldrf.units.targets import Target
from ldrf.units.width_choices import Choices

ABOVE = 1.03  # how far above what was asked a measured ratio may lie
AIM = 1.0175  # and where it should
SURE = 1.005  # and from where on it is sure to be met when it is timed again
ROUNDS = 10  # networks built and timed, at most
NEAR = 1.04  # how far from what was asked a short look at the clock may be off
CLOSE = 1.003  # plans nearer than that are the same
CAREFUL = 0.7  # how much less than its share of the time is asked of the layers at first, at most
HASTE = 1.3  # how much faster than in proportion the layers must shrink, as not all time is in them
EXPECTED = (1.25, 1.5, 2.0, 2.5, 3.0, 4.0)  # ratios whose estimated error is told

Allocate = Callable[[LatencyModel, float], dict[str, int]]


@dataclass(frozen=True)
class Trial:
    """One plan on the clock: its layers' share of the dense layers' time by the tables, and what was measured."""

    share: float
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
    branches: tuple[PricedBranch, ...] = (),
) -> tuple[dict[str, int], Latency]:
    """Widths whose network reaches the target on the clock, and what was measured of it.

    ``allocate`` finds widths for a ratio; by default they are those of the least error by ``curves``, where
    ``branches`` may be left out.
    """
    ratio = asked_ratio(target, deployed)
    model = latency_model(network.trace, network.units, choices, deployed)

    def by_error(model: LatencyModel, ratio: float) -> dict[str, int]:
        return allocate_with_depth(allocate_by_time, model, ratio, curves or {}, choices, branches)

    trial = _corrected(network, with_zeros(choices, branches), deployed, model, allocate or by_error, ratio)
    return trial.widths, _record(deployed, model, trial, _expected(model, choices, curves))


def _corrected(
    network: Network, choices: Choices, deployed: Deployed, model: LatencyModel, plan: Allocate, ratio: float
) -> Trial:
    """The slowest network on the clock that is still fast enough.

    The tables say how the layers' time falls, the clock how that of the whole follows: what is asked of the tables is
    corrected between a network that was too slow and one that was fast enough.
    """
    least = _share(model, {name: widths[0] for name, widths in choices.items()})
    slow, fast = (1.0, 1.0), None  # (share by the tables, share on the clock); the dense network is too slow
    best: Trial | None = None
    share = max(_first_share(model, ratio * AIM), least)
    for _ in range(ROUNDS):
        widths = plan(model, _ratio_of(model, share))
        trial = _timed(network, model, deployed, widths, ratio)
        if trial.ratio < ratio * (SURE if share > least else 1):
            if share <= least:
                raise _out_of_reach(deployed, model, trial, ratio)
            slow = (min(trial.share, slow[0]), 1 / trial.ratio)
        else:
            fast = (trial.share, 1 / trial.ratio)
            best = trial if best is None or trial.ratio <= best.ratio else best
            if trial.ratio <= ratio * ABOVE:
                return trial
        if fast is not None and slow[0] <= fast[0] * CLOSE:
            break
        share = max(_between(slow, fast, 1 / (ratio * AIM)), least)
    return best or _smallest(network, choices, deployed, model, ratio)


def _timed(network: Network, model: LatencyModel, deployed: Deployed, widths: dict[str, int], ratio: float) -> Trial:
    """A plan on the clock; one that looks right is timed for longer."""
    timed = deployed.time_cut(network.units, widths, network.branches)
    if ratio / NEAR <= timed.ratio() <= ratio * NEAR:
        timed = deployed.time_cut(network.units, widths, network.branches, careful=True)
    return Trial(_share(model, widths), widths, timed)


def _smallest(network: Network, choices: Choices, deployed: Deployed, model: LatencyModel, ratio: float) -> Trial:
    """The network with every unit at its smallest width, if that is fast enough."""
    widths = {name: choice[0] for name, choice in choices.items()}
    trial = _timed(network, model, deployed, widths, ratio)
    if trial.ratio < ratio:
        raise _out_of_reach(deployed, model, trial, ratio)
    return trial


def _share(model: LatencyModel, widths: Mapping[str, int]) -> float:
    """The layers' time with these widths, as a share of that of the dense layers."""
    return (model.at(widths) - model.fixed) / (model.at({}) - model.fixed)


def _ratio_of(model: LatencyModel, share: float) -> float:
    """The ratio to ask of the model so that its layers take this share of their time."""
    return model.at({}) / (model.fixed + share * (model.at({}) - model.fixed))


def _first_share(model: LatencyModel, ratio: float) -> float:
    """The share that the tables promise to be enough; not far below what it would be if all time were in layers."""
    left = model.at({}) / ratio - model.fixed
    return max(left / (model.at({}) - model.fixed), CAREFUL / ratio)


def _between(slow: tuple[float, float], fast: tuple[float, float] | None, aim: float) -> float:
    """The share to ask for next, on the line through what was measured."""
    if fast is None:
        return slow[0] * min(aim / slow[1], 1 / CLOSE) ** HASTE
    where = (aim - fast[1]) / (slow[1] - fast[1]) if slow[1] > fast[1] else 0.5
    return fast[0] + (slow[0] - fast[0]) * min(max(where, 0.1), 0.9)


def _out_of_reach(deployed: Deployed, model: LatencyModel, trial: Trial, ratio: float) -> OutOfReach:
    fixed = model.untouched
    share = sum(layer.at(model.full) for layer in fixed) / model.at({})
    slowest = sorted(fixed, key=lambda layer: -layer.at(model.full))[:3]
    names = ", ".join(layer.name for layer in slowest) + (", ..." if len(fixed) > 3 else "")
    held = f"{share:.0%} of the time is in layers that keep their width: {names}" if fixed else "all layers can shrink"
    rest = model.fixed / model.at({})
    return OutOfReach(
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
    scale = 1000 * trial.timed.seconds["dense"] / model.at({})  # milliseconds, as the whole was timed the last time
    slim = {**model.full, **trial.widths}
    times = [LayerTime(la.name, scale * la.at(model.full), scale * la.at(slim)) for la in model.layers]
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
