"""A slim model that does not run, compute, export or train as it should is not handed out."""

# pyright: reportAttributeAccessIssue=false, reportCallIssue=false, reportArgumentType=false

import copy
from dataclasses import replace

import pytest
from fixed_batches import Counted, batches
from networks import Chain, images, make
from torch import Tensor, nn

from ldrf.calibration.network import Network, read_network
from ldrf.config import PruneConfig
from ldrf.errors import LdrfError
from ldrf.recomposition.verification import verify


def test_a_model_that_computes_something_else_is_not_handed_out(network):
    net = network(Chain)
    verify(net, net.dense, net.model)
    wrong = copy.deepcopy(net.model)
    wrong.fc.weight.data *= 1.1
    with pytest.raises(LdrfError, match="differs from what was solved for"):
        verify(net, net.dense, wrong)
    wrong.fc = nn.Linear(16, 4)
    with pytest.raises(LdrfError, match="other shapes than the dense one"):
        verify(net, net.dense, wrong)
    wrong.fc = nn.Linear(15, 5)
    with pytest.raises(LdrfError, match="does not run, so it is not handed out"):
        verify(net, net.dense, wrong)


class Guarded(Chain):
    """A chain that can be told to take batches of one size only, to look at its values, or to fail in training."""

    odd = ""

    def forward(self, x: Tensor) -> Tensor:
        if self.odd == "size" and len(x) == 9:
            raise ValueError("nine images")
        if self.odd == "values" and float(x.sum()) > 1e9:
            return x
        if self.odd == "training" and self.training:
            x = x[:, :2]
        return super().forward(x)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("odd", "told"),
    [
        ("size", "does not run, so it is not handed out: nine images"),
        ("values", "does not export any more, so it is not handed out"),
        ("training", "cannot be trained, so it is not handed out"),
    ],
)
def test_what_only_shows_at_another_batch_size_in_export_or_in_training_is_found(odd: str, told: str):
    net = read_network(make(Guarded), [images(10)], (), PruneConfig())
    slim = copy.deepcopy(net.model)
    verify(net, net.dense, slim)
    slim.odd = odd
    with pytest.raises(LdrfError, match=told):
        verify(net, net.dense, slim)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 2, 3])
def test_few_images_are_no_trouble(rows: int):
    net = read_network(make(Chain), [images(rows)], (), PruneConfig())
    verify(net, net.dense, net.model)


def _misfolded(net: Network) -> Network:
    """The network with a layer that is folded wrongly."""
    node = net.trace.layers[0].node
    weight, bias = net.dense.layers[node]
    return replace(net, dense=net.dense.with_layers({node: (weight * 1.01, bias)}))


def test_a_network_that_is_not_itself_at_full_width_is_not_pruned(network):
    net = network(Chain)
    wrong, slim = _misfolded(net), copy.deepcopy(net.model)
    slim.bn1.weight.data *= 1.01  # what the wrong folding says
    shift = slim.bn1.running_mean * slim.bn1.weight / (slim.bn1.running_var + slim.bn1.eps).sqrt()
    slim.bn1.bias.data += shift.detach() * (0.01 / 1.01)  # a constant that the folding left as it was
    with pytest.raises(LdrfError, match="taken apart and put together again at full width"):
        verify(wrong, wrong.dense, slim)


class Overwriting(Chain):
    """Writes into what the way back needs, so that it cannot be trained, dense or slim."""

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x).sigmoid()
        return y + y.mul_(2)


@pytest.mark.slow
def test_a_model_that_never_could_be_trained_is_handed_out():
    net = read_network(make(Overwriting), [images(10)], (), PruneConfig())
    verify(net, net.dense, copy.deepcopy(net.model))


def test_where_the_graph_alone_fixes_the_batch_the_slim_model_takes_others():
    model, (x,) = make(Counted), batches(8, 1)
    network = read_network(model, [x, x], (), PruneConfig())
    verify(network, network.dense, copy.deepcopy(model))

    class Stuck(Counted):
        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.mapped(x).reshape(8, -1))

    stuck = Stuck()
    stuck.load_state_dict(model.state_dict())
    with pytest.raises(LdrfError, match="slim Stuck does not take 7 examples as the dense one does"):
        verify(network, network.dense, stuck.eval())
