"""H. Li, A. Kadav, I. Durdanovic, H. Samet, H. P. Graf, Pruning Filters for Efficient ConvNets, ICLR 2017."""

from torch import Tensor

from ldrf.calibration.network import Network
from ldrf.config import PruneConfig
from ldrf.methods.shared.cutting import cutting_method
from ldrf.planning.findings import Findings
from ldrf.tracing.interpreter import read_tensor
from ldrf.units.columns import neuron_sums
from ldrf.units.unit import Unit


def filter_norms(network: Network, unit: Unit) -> Tensor:
    """The l1 norm of each neuron's filters [n], as they are stored: a BatchNorm behind them does not count."""
    weight = read_tensor(network.model, unit.producer.weight).detach().float().cpu()
    norms = weight.movedim(unit.producer.row_dim, 0).flatten(1).abs().sum(1)
    return neuron_sums(norms, unit.neuron_of_output, unit.width)


def score(network: Network, findings: Findings, config: PruneConfig) -> dict[str, Tensor]:
    return {unit.name: filter_norms(network, unit) for unit in network.units}


ENTRY = cutting_method("li2017", "filter L1 (Li 2017)", "#8a5fbf", score)
