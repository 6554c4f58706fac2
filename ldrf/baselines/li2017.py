"""H. Li, A. Kadav, I. Durdanovic, H. Samet, H. P. Graf, Pruning Filters for Efficient ConvNets, ICLR 2017."""

from torch import Tensor

from ldrf.baselines.cutting import cutting_method
from ldrf.config import PruneConfig
from ldrf.methods import Findings
from ldrf.network import Network
from ldrf.selection import per_neuron
from ldrf.tracing import read_tensor
from ldrf.units import Unit


def filter_norms(network: Network, unit: Unit) -> Tensor:
    """The l1 norm of each filter [n], as it is stored: a BatchNorm behind it does not count."""
    weight = read_tensor(network.model, unit.producer.weight).detach().float().cpu()
    weight = weight.transpose(0, 1) if unit.producer.is_transposed else weight
    return per_neuron(unit, weight.flatten(1).abs().sum(1))


def score(findings: Findings, config: PruneConfig) -> dict[str, Tensor]:
    return {unit.name: filter_norms(findings.network, unit) for unit in findings.network.units}


LI2017 = cutting_method("li2017", score)
