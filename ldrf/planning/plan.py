"""From a target to a width plan: ranges, error curves and costs of all units brought together."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

from torch import Tensor

from ldrf.calibration.network import Network, with_coupled
from ldrf.config import PruneConfig
from ldrf.deployment.deployed import Deployed
from ldrf.deployment.latency import Latency
from ldrf.planning.allocation import allocate_by_error, allocate_by_share, check_reachable, reachable
from ldrf.planning.depth_allocation import PricedBranch, allocate_with_depth, with_zeros
from ldrf.planning.latency_plan import needs_coupled, plan_by_latency
from ldrf.planning.objective import Objective
from ldrf.planning.ranks import unit_ranks, unit_spectra
from ldrf.planning.uniform import allocate_uniformly, tied_choices
from ldrf.registry import OBJECTIVES
from ldrf.units.indices import least_width
from ldrf.units.targets import Target, exact_widths
from ldrf.units.unit import Unit
from ldrf.units.width_choices import Choices, width_choices


def for_target(
    network: Network,
    target: Target,
    config: PruneConfig,
    deployed: Deployed | None = None,
    planned: Mapping[str, int] | None = None,
) -> tuple[Network, dict[str, Tensor]]:
    """The network, with coupled widths among its units if the target names one or needs them, and all their spectra.

    ``planned`` are the widths of an earlier part of the same run, which decide it then.
    """
    spectra = unit_spectra(network.model, network.units)
    if config.coupled is not None or not network.coupled:
        return network, spectra
    if planned is not None:
        needed = any(unit.name in planned for unit in network.coupled)
    else:
        needed = _needs_coupled(network, target, spectra, config, deployed)
    return (
        (with_coupled(network), spectra | unit_spectra(network.model, network.coupled))
        if needed
        else (network, spectra)
    )


def _needs_coupled(
    network: Network, target: Target, spectra: dict[str, Tensor], config: PruneConfig, deployed: Deployed | None
) -> bool:
    asked = target.widths if target.widths is not None else target.keep
    if asked is not None:
        return any(unit.name in asked for unit in network.coupled)
    choices = choices_of(network.units, unit_ranks(network.units, spectra, config.energy), config)
    if deployed is not None:
        return needs_coupled(network, choices, target, deployed)
    return reachable(_objective(target).cost(network), choices) < target.ratio


def _objective(target: Target) -> Objective:
    return OBJECTIVES.find(str(target.objective))


def choices_of(units: tuple[Unit, ...], ranks: dict[str, int], config: PruneConfig) -> Choices:
    """The widths of every unit: multiples from its rank up, or from one where every unit is to keep the same share."""
    low = {u.name: 1 if config.allocation == "uniform" else min(ranks[u.name], u.width) for u in units}
    return {u.name: width_choices(u, max(low[u.name], least_width(u)), config.multiple) for u in units}


# Whose error the curves tell: the network's outputs', or that of the layers that read the unit, in shares of variance.
CurvesOf = Literal["outputs", "readers"]


@dataclass(frozen=True)
class Plan:
    """Width of every unit, and the curves that led there."""

    widths: dict[str, int]
    curves: dict[str, Tensor]  # estimated error at every width [n + 1]
    curves_of: CurvesOf
    latency: Latency | None = None  # what was measured, where the target is one


def plan_widths(
    network: Network,
    target: Target,
    ranks: dict[str, int],
    errors: dict[str, Tensor],
    curves: Callable[[], dict[str, Tensor]],
    config: PruneConfig,
    deployed: Deployed | None = None,
    priced: Callable[[], tuple[PricedBranch, ...]] = tuple,
) -> Plan:
    """Widths that meet the target at the least estimated damage, or as the configured rule says.

    ``errors`` are those of the layers that read each unit, at every width; ``curves`` gives those of the outputs, and
    ``priced`` the branches that may be left out.
    """
    if target.widths is not None or target.keep is not None:
        exact = exact_widths(target, network.units, network.skipped, config.multiple, network.branches)
        return Plan(exact, errors, "readers")
    choices = choices_of(network.units, ranks, config)
    if config.uniform:
        choices = tied_choices(choices, {unit.name: unit.width for unit in network.units})
    if deployed is not None:
        return _plan_by_latency(network, target, choices, errors, curves, config, deployed, priced)
    objective = _objective(target)
    cost = objective.cost(network)
    check_reachable(cost, with_zeros(choices, network.branches), target.ratio, objective.label, config.energy)
    if config.uniform:
        estimated = curves() if config.allocation == "error" else errors
        widths = allocate_uniformly(cost, target.ratio, estimated, choices)
        return Plan(widths, estimated, "outputs" if config.allocation == "error" else "readers")
    if config.allocation == "uniform":
        return Plan(allocate_by_share(cost, target.ratio, choices), errors, "readers")
    if config.allocation == "paper":
        return Plan(allocate_by_share(cost, target.ratio, choices, depth_bias=0.5), errors, "readers")
    estimated = curves()
    widths = allocate_with_depth(allocate_by_error, cost, target.ratio, estimated, choices, priced())
    return Plan(widths, estimated, "outputs")


def _plan_by_latency(
    network: Network,
    target: Target,
    choices: Choices,
    errors: dict[str, Tensor],
    curves: Callable[[], dict[str, Tensor]],
    config: PruneConfig,
    deployed: Deployed,
    priced: Callable[[], tuple[PricedBranch, ...]],
) -> Plan:
    """Widths that reach the target on the clock, by error curves or as the configured rule says."""
    if config.allocation == "error":
        estimated = curves()
        widths, latency = plan_by_latency(network, target, choices, deployed, estimated, branches=priced())
        return Plan(widths, estimated, "outputs", latency)
    bias = 0.5 if config.allocation == "paper" else 0.0
    share = partial(allocate_by_share, choices=choices, depth_bias=bias)
    widths, latency = plan_by_latency(network, target, choices, deployed, None, share)
    return Plan(widths, errors, "readers", latency)
