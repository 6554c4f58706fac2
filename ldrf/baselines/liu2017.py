"""Z. Liu, J. Li, Z. Shen, G. Huang, S. Yan, C. Zhang, Learning Efficient Convolutional Networks through Network
Slimming, ICCV 2017: the scale |gamma| of a neuron's BatchNorm, here of a network not trained to make it sparse.

A unit without a BatchNorm of learned scales is ranked by its filters' l1 norms instead.
"""

from torch import Tensor, nn

from ldrf.baselines.cutting import cutting_method
from ldrf.baselines.li2017 import filter_norms
from ldrf.config import PruneConfig
from ldrf.methods import Findings
from ldrf.network import Network
from ldrf.tracing import read_tensor
from ldrf.units import Unit


def norm_scales(network: Network, unit: Unit) -> Tensor | None:
    """|gamma| of the first BatchNorm that the unit's neurons pass through [n], if it has one."""
    norm = unit.producer.norm
    names = [norm.weight] if norm is not None and norm.weight else []
    names += [p.tensor for p in unit.slices if p.tensor.endswith(".weight") and list(p.ids) == list(range(unit.width))]
    for name in names:
        owner = network.model.get_submodule(name.removesuffix(".weight"))
        if isinstance(owner, nn.modules.batchnorm._BatchNorm):
            found = read_tensor(network.model, name).detach().float().cpu().abs()
            if len(found) == unit.width:
                return found
    return None


def score(findings: Findings, config: PruneConfig) -> dict[str, Tensor]:
    found = {}
    for unit in findings.network.units:
        scales = norm_scales(findings.network, unit)
        found[unit.name] = filter_norms(findings.network, unit) if scales is None else scales
    return found


LIU2017 = cutting_method("liu2017", score)
