"""Which neurons stay once a unit's width is known (Tab. 2): the mask m_l of Eqn. 6."""

import zlib

import torch
from torch import Tensor

from ldrf.algebra.neuron_removal import Removal
from ldrf.calibration.survey import Survey
from ldrf.config import Selection
from ldrf.tracing.interpreter import Weights
from ldrf.units.columns import neuron_sums
from ldrf.units.unit import Unit


def select(
    criterion: Selection, unit: Unit, width: int, dense: Weights, survey: Survey, removal: Removal | None, seed: int
) -> Tensor:
    """Indices of the ``width`` neurons to keep, in ascending order."""
    if width >= unit.width:
        return torch.arange(unit.width)
    if criterion == "second-order" and removal is not None:
        return removal.kept(width)
    scores = neuron_scores(criterion, unit, dense, survey, seed)
    return scores.argsort(descending=True, stable=True)[:width].sort().values


def neuron_scores(criterion: Selection, unit: Unit, dense: Weights, survey: Survey, seed: int) -> Tensor:
    """One score per neuron [n]; the largest stay."""
    if criterion == "top-k":  # the paper's mask: the first k neurons as they come
        return -torch.arange(unit.width, dtype=torch.float32)
    if criterion == "random":
        generator = torch.Generator().manual_seed(seed + zlib.crc32(unit.name.encode()))
        return torch.rand(unit.width, generator=generator)
    if criterion == "apoz":  # Hu 2016: the fewer zeros, the better
        return -survey.zeros
    if criterion == "activation":
        return survey.activity
    norms = dense.layer(unit.producer.node)[0].flatten(1).abs().sum(1).cpu()  # Li 2017: l1 norm of the filter
    return neuron_sums(norms, unit.neuron_of_output, unit.width)
