"""Z. Liu, J. Li, Z. Shen, G. Huang, S. Yan, C. Zhang, Learning Efficient Convolutional Networks through Network
Slimming, ICCV 2017: the scale |gamma| of a neuron's BatchNorm, here of a network not trained to make it sparse.

A unit without a BatchNorm of learned scales is ranked by its filters' l1 norms instead.
"""

import numpy as np
from torch import Tensor, nn

from ldrf.calibration.network import Network
from ldrf.config import PruneConfig
from ldrf.methods.li2017 import filter_norms
from ldrf.methods.shared.cutting import cutting_method
from ldrf.planning.findings import Findings
from ldrf.tracing.interpreter import read_tensor
from ldrf.units.columns import neuron_sums
from ldrf.units.indices import pieces
from ldrf.units.unit import Unit


def norm_scales(network: Network, unit: Unit) -> Tensor | None:
    """|gamma| of the first BatchNorm that all of the unit's neurons pass through [n], if it has one."""
    for piece in pieces(unit):
        path, _, leaf = piece.tensor.rpartition(".")
        normed = isinstance(network.model.get_submodule(path), nn.modules.batchnorm._BatchNorm)
        if normed and leaf == "weight" and np.isin(np.arange(unit.width), piece.ids).all():
            scales = read_tensor(network.model, piece.tensor).detach().float().cpu().abs()
            return neuron_sums(scales, piece.ids, unit.width)
    return None


def score(network: Network, findings: Findings, config: PruneConfig) -> dict[str, Tensor]:
    scores = {}
    for unit in network.units:
        scales = norm_scales(network, unit)
        scores[unit.name] = filter_norms(network, unit) if scales is None else scales
    return scores


ENTRY = cutting_method("liu2017", "BN scale (Liu 2017)", "#6f8f2f", score)
