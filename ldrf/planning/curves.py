"""Error curves: what each unit costs at every width, for the layers that read it and for the network's outputs."""

import torch
from torch import Tensor

from ldrf.algebra.neuron_removal import Removal, removal_order
from ldrf.calibration.network import Network
from ldrf.calibration.survey import Survey
from ldrf.channels.attention_scores import score_errors
from ldrf.config import PruneConfig
from ldrf.planning.depth_allocation import PricedBranch
from ldrf.planning.sensitivity import branch_errors, output_errors
from ldrf.runtime.device import exact
from ldrf.runtime.processes import joined, turns
from ldrf.runtime.progress import progress
from ldrf.tracing.interpreter import Weights
from ldrf.units.columns import neuron_columns, neuron_sums
from ldrf.units.targets import Target, exact_widths
from ldrf.units.unit import Unit

TRIAL = 0.5  # share of a unit's neurons kept when its effect on the outputs is measured
EXAMPLES = 256  # images on which that is done


def removal_curves(
    network: Network, target: Target, surveys: dict[str, Survey], config: PruneConfig, picks: bool = True
) -> dict[str, Removal]:
    """Removal curves of the units that need one: all to find widths, those that are cut to pick neurons (``picks``)."""
    picks = picks and config.selection == "second-order"
    wanted = network.units if picks or config.allocation == "error" else ()
    if target.widths is not None or target.keep is not None:
        asked = exact_widths(target, network.units, network.skipped, config.multiple, network.branches)
        wanted = tuple(u for u in network.units if picks and 0 < asked[u.name] < u.width)
    units = {u.name: u for u in wanted}
    mine = progress(turns(list(units)), "error curves")
    removals = joined({name: removal_curve(network, units[name], surveys[name], config) for name in mine})
    return {name: removals[name] for name in units}


def removal_curve(network: Network, unit: Unit, survey: Survey, config: PruneConfig) -> Removal:
    """The order in which a unit's neurons go, and the error of its consumers at every width."""
    readers = []
    for consumer, moments in zip(unit.consumers, survey.moments, strict=True):
        weight = network.dense.layer(consumer.layer.node)[0].flatten(1).T
        if (consumer.channels >= 0).any():
            moments = moments if consumer.layer.has_bias else moments.about_zero()
            readers.append((moments.to(weight.device), weight, neuron_columns(consumer, unit.width)))
    removal = removal_order(readers, config.damping) if readers else None
    # Channels that end in scores or in the gates of a recurrent layer are read by no layer of least squares.
    return with_scores(removal, unit, network.dense) if unit.scores or removal is None else removal


def with_scores(removal: Removal | None, unit: Unit, dense: Weights) -> Removal:
    """The curve of a unit whose neurons are queries and keys: the attention scores that are lost count as well.

    Queries and keys are rotated before the cut, so the order of these neurons does not matter. Where they cannot be
    rotated, the smallest go first.
    """
    squares = exact(dense.affine(unit.producer.node)[0].flatten(1)).square().sum(1).cpu()
    sizes = neuron_sums(squares, unit.neuron_of_output, unit.width)
    order = sizes.argsort() if removal is None else removal.order
    kept = torch.cat([sizes.new_zeros(1), sizes[order.flip(0)].cumsum(0)])
    lost = score_errors(dense, unit.compared) if unit.compared else 1 - kept / kept[-1].clamp_min(1e-300)
    return Removal(order, lost if removal is None else lost + removal.errors)


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


def priced_branches(network: Network) -> tuple[PricedBranch, ...]:
    """The branches that may be left out, with what that changes in the network's outputs."""
    known = {unit.name for unit in network.units}
    errors = branch_errors(network, EXAMPLES, progress) if network.branches else {}
    priced = [(tuple(u for u in b.units if u in known), errors[b.name]) for b in network.branches]
    return tuple(PricedBranch(units, error) for units, error in priced if units)
