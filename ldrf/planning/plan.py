"""From a target to a width plan: ranges, error curves and costs of all units brought together."""

from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor, nn

from ldrf.algebra.decomposition import rank_at
from ldrf.algebra.neuron_removal import Removal, removal_order
from ldrf.calibration.network import Network, with_coupled
from ldrf.calibration.survey import Survey
from ldrf.channels.attention_scores import score_errors
from ldrf.config import PruneConfig
from ldrf.planning.allocation import allocate_by_error, allocate_by_share, check_reachable, reachable
from ldrf.planning.cost_model import CostModel, mac_model, parameter_model
from ldrf.planning.ranks import weight_spectrum
from ldrf.planning.sensitivity import output_errors
from ldrf.runtime.processes import joined, turns
from ldrf.runtime.progress import progress
from ldrf.tracing.counting import count_macs, count_parameters
from ldrf.tracing.interpreter import Weights
from ldrf.units.columns import neuron_columns, neuron_sums
from ldrf.units.indices import least_width
from ldrf.units.targets import Target, exact_widths
from ldrf.units.unit import Unit
from ldrf.units.width_choices import Choices, width_choices

TRIAL = 0.5  # share of a unit's neurons kept when its effect on the outputs is measured
EXAMPLES = 256  # images on which that is done


def for_target(network: Network, target: Target, config: PruneConfig) -> tuple[Network, dict[str, Tensor]]:
    """The network, with coupled widths among its units if the target names one or needs them, and all their spectra."""
    spectra = unit_spectra(network.model, network.units)
    if config.coupled is not None or not network.coupled or not _needs_coupled(network, target, spectra, config):
        return network, spectra
    return with_coupled(network), spectra | unit_spectra(network.model, network.coupled)


def _needs_coupled(network: Network, target: Target, spectra: dict[str, Tensor], config: PruneConfig) -> bool:
    asked = target.widths if target.widths is not None else target.keep
    if asked is not None:
        return any(unit.name in asked for unit in network.coupled)
    cost, ranks = _cost(network, target), unit_ranks(network.units, spectra, config.energy)
    return reachable(cost, choices_of(network.units, ranks, config)) < (target.speedup or target.params or 1.0)


def _cost(network: Network, target: Target) -> CostModel:
    if target.speedup is not None:
        return mac_model(network.trace, network.units, count_macs(network.model, network.example))
    return parameter_model(network.trace, network.units, count_parameters(network.model))


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


def removal_curves(
    network: Network, target: Target, surveys: dict[str, Survey], config: PruneConfig, picks: bool = True
) -> dict[str, Removal]:
    """Removal curves of the units that need one: all to find widths, those that are cut to pick neurons (``picks``)."""
    picks = picks and config.selection == "second-order"
    wanted = network.units if picks or config.allocation == "error" else ()
    if target.widths is not None or target.keep is not None:
        asked = exact_widths(target, network.units, network.skipped, config.multiple)
        wanted = tuple(u for u in network.units if picks and asked[u.name] < u.width)
    units = {u.name: u for u in wanted}
    mine = progress(turns(list(units)), "error curves")
    found = joined({name: removal_curve(network, units[name], surveys[name], config) for name in mine})
    return {name: found[name] for name in units}


def removal_curve(network: Network, unit: Unit, survey: Survey, config: PruneConfig) -> Removal:
    """The order in which a unit's neurons go, and the error of its consumers at every width."""
    readers = []
    for consumer, moments in zip(unit.consumers, survey.moments, strict=True):
        weight = network.dense.layers[consumer.layer.node][0].flatten(1).T
        if (consumer.channels >= 0).any():
            readers.append((moments, weight, neuron_columns(consumer, unit.width)))
    removal = removal_order(readers, config.damping) if readers else None
    return with_scores(removal, unit, network.dense) if unit.scores else cast("Removal", removal)


def with_scores(removal: Removal | None, unit: Unit, dense: Weights) -> Removal:
    """The curve of a unit whose neurons are queries and keys, whatever else they are: scores that are lost count.

    A turn before the cut makes the order of such neurons no matter; where there is none, the smallest go first.
    """
    sizes = neuron_sums(dense.affine(unit.producer.node)[0].flatten(1).double().square().sum(1), unit.rows, unit.width)
    order = sizes.argsort() if removal is None else removal.order
    kept = torch.cat([sizes.new_zeros(1), sizes[order.flip(0)].cumsum(0)])
    lost = score_errors(dense, unit.compared) if unit.compared else 1 - kept / kept[-1].clamp_min(1e-300)
    return Removal(order, lost if removal is None else lost + removal.errors)


def unit_spectra(model: nn.Module, units: tuple[Unit, ...]) -> dict[str, Tensor]:
    """Singular values of every unit's producing weight, the largest first."""
    return {unit.name: weight_spectrum(model, unit.producer) for unit in units}


def unit_ranks(units: tuple[Unit, ...], spectra: dict[str, Tensor], energy: float) -> dict[str, int]:
    """z_l of every unit: the low rank of its producer's weight, in neurons where these are several outputs each."""
    found = {}
    for unit in units:
        rank = rank_at(spectra[unit.name], energy)
        found[unit.name] = min(-(-rank * unit.width // unit.producer.outputs), unit.width)
    return found


def plan_widths(
    network: Network,
    target: Target,
    ranks: dict[str, int],
    surveys: dict[str, Survey],
    removals: dict[str, Removal],
    config: PruneConfig,
) -> Plan:
    """Widths that meet the target at the least estimated damage, or as the configured rule says."""
    errors = {name: removal.errors for name, removal in removals.items()}
    if target.widths is not None or target.keep is not None:
        return Plan(exact_widths(target, network.units, network.skipped, config.multiple), errors, "readers")
    ratio, what = (target.speedup, "speedup") if target.speedup is not None else (target.params or 1.0, "params ratio")
    cost = _cost(network, target)
    choices = choices_of(network.units, ranks, config)
    check_reachable(cost, choices, ratio, what, config.energy)
    if config.allocation == "uniform":
        return Plan(allocate_by_share(cost, ratio, choices), errors, "readers")
    if config.allocation == "paper":
        return Plan(allocate_by_share(cost, ratio, choices, depth_bias=0.5), errors, "readers")
    curves = output_curves(network, surveys, removals, config)
    return Plan(allocate_by_error(cost, ratio, curves, choices), curves, "outputs")


def output_curves(
    network: Network, surveys: dict[str, Survey], removals: dict[str, Removal], config: PruneConfig
) -> dict[str, Tensor]:
    """Each unit's error curve, scaled to the change it makes in the network's outputs."""
    trial = {unit.name: max(1, round(TRIAL * unit.width)) for unit in network.units}
    measured = output_errors(network, surveys, removals, trial, config.damping, EXAMPLES, progress)
    curves = {}
    for unit in network.units:
        errors = removals[unit.name].errors
        curves[unit.name] = errors * (measured[unit.name] / max(float(errors[trial[unit.name]]), 1e-12))
    return curves
