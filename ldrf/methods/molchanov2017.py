"""P. Molchanov, S. Tyree, T. Karras, T. Aila, J. Kautz, Pruning Convolutional Neural Networks for Resource Efficient
Inference, ICLR 2017: the first-order Taylor term of the loss when a feature map is set to zero. Needs labels."""

import torch
import torch.nn.functional as F
from torch import Tensor

from ldrf.calibration.network import Network
from ldrf.config import PruneConfig
from ldrf.errors import LdrfError
from ldrf.inputs import Inputs
from ldrf.methods.shared.cutting import cutting_method
from ldrf.planning.findings import Findings
from ldrf.runtime.processes import sum_all
from ldrf.runtime.progress import progress
from ldrf.tracing.interpreter import run
from ldrf.tracing.lean_run import input_values
from ldrf.tracing.trace import Trace
from ldrf.units.columns import neuron_sums
from ldrf.units.grouping import activation_behind
from ldrf.units.unit import Unit

NAME = "molchanov2017"


def score(network: Network, findings: Findings, config: PruneConfig) -> dict[str, Tensor]:
    """Per unit [n]: |mean over positions of activation * gradient|, mean over images, l2-normalised over the unit."""
    network, calibration = network, network.calibration
    if findings.labels is None:
        raise LdrfError(f"Method '{NAME}' needs batches with labels. Got none.")
    sums = {unit.name: torch.zeros(unit.width, dtype=torch.float64) for unit in network.units}
    for index in progress(calibration.own(calibration.fitting), "taylor"):
        labels = findings.labels[list(calibration.images(index))]
        for name, terms in taylor_terms(network, calibration.chunks[index], labels).items():
            sums[name] += terms.sum(0).cpu()
    return {name: (terms / terms.norm().clamp_min(1e-30)).float() for name, terms in sum_all(sums).items()}


def taylor_terms(network: Network, chunk: Inputs, labels: Tensor) -> dict[str, Tensor]:
    """|mean over positions of activation * gradient of the image's own loss| by unit [images, n]."""
    trace, values = network.trace, input_values(network.trace, chunk, network.dense.device)
    nodes = {activation_behind(trace, u.producer.result) or u.producer.result: u for u in network.units}
    maps: dict[str, Tensor] = {}
    with torch.enable_grad():
        for node in trace.nodes:
            run(trace, network.dense, (node,), values)
            if node.name in nodes:
                value = values[node.name]
                # Only the first map is a leaf: those behind it have a gradient already.
                maps[node.name] = value if value.requires_grad else value.requires_grad_()
        scores = _scores(trace, values, labels)
        loss = F.cross_entropy(scores.float(), labels.to(scores.device), reduction="sum")
        slopes = torch.autograd.grad(loss, list(maps.values()), allow_unused=True)
    return {
        nodes[name].name: _per_neuron(nodes[name], value.detach() * slope).abs()
        for (name, value), slope in zip(maps.items(), slopes, strict=True)
        if slope is not None
    }


def _scores(trace: Trace, values: dict[str, Tensor], labels: Tensor) -> Tensor:
    """The classifier's scores [images, classes], checked against the labels."""
    outputs = [values[name] for name in trace.outputs]
    if len(outputs) != 1 or outputs[0].ndim != 2:
        shapes = [list(o.shape) for o in outputs]
        raise LdrfError(f"Method '{NAME}' needs a model with one output of scores [batch, classes]. Got {shapes}.")
    classes = outputs[0].shape[1]
    if not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        given = f"{int(labels.min())} to {int(labels.max())}"
        raise LdrfError(f"Method '{NAME}' needs labels from 0 to {classes - 1}. Got {given} instead.")
    return outputs[0]


def _per_neuron(unit: Unit, product: Tensor) -> Tensor:
    """Mean over the positions of a map [images, o, ...], or [images, ..., o] behind a linear layer: [images, n].

    Outputs of one neuron go together, so their terms add up.
    """
    product = product.movedim(unit.producer.channel_dim, -1)
    means = product.reshape(len(product), -1, product.shape[-1]).mean(1)
    return neuron_sums(means, unit.neuron_of_output, unit.width)


ENTRY = cutting_method(NAME, "Taylor (Molchanov 2017)", "#d1689f", score, labelled=True)
