"""The interpreter computes what the eager model computes, with norms folded and with other weights."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false

import pytest
import torch
import torch.nn.functional as F
from networks import CASES, Case, Chain, Flattened, Mlp, Residual, assert_same_outputs, graph_outputs, images, settled
from torch import Tensor, nn

from ldrf.inputs import Inputs, read_inputs
from ldrf.tracing.interpreter import fold, folded, run
from ldrf.tracing.layer import Norm
from ldrf.tracing.lean_run import input_values
from ldrf.tracing.trace import trace


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("rows", [1, 7])
def test_interpreter_equals_the_eager_model_at_any_batch_size(network, case: Case, rows):
    net = network(case.kind)
    assert_same_outputs(net.model, net.trace, net.dense, read_inputs(net.model, case.batch(rows)))


@pytest.mark.parametrize("affine", [True, False])
def test_fold_is_layer_then_norm(affine):
    torch.manual_seed(0)
    conv, norm = nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5, affine=affine)
    settled(nn.Sequential(conv, norm))
    own = {f"bn.{k}": v.detach() for k, v in norm.state_dict().items()}
    names = ("bn.weight", "bn.bias") if affine else (None, None)
    weight, bias = fold(Norm("n", *names, "bn.running_mean", "bn.running_var", norm.eps), conv.weight, conv.bias, own)
    x = images(4)
    torch.testing.assert_close(F.conv2d(x, weight, bias), norm(conv(x)), rtol=1e-5, atol=1e-5)


def test_folding_leaves_the_models_tensors_alone(network):
    net = network(Residual)
    before = {k: v.clone() for k, v in net.model.state_dict().items()}
    folded(net.trace, net.model)
    assert all(torch.equal(before[k], v) for k, v in net.model.state_dict().items())


def test_running_a_stretch_continues_from_given_values(network):
    net = network(Chain)
    inputs = read_inputs(net.model, images(3))
    whole = run(net.trace, net.dense, net.trace.nodes, input_values(net.trace, inputs))
    cut = net.trace.index(net.trace.layers[1].node)
    half = run(net.trace, net.dense, net.trace.nodes[:cut], input_values(net.trace, inputs))
    rest = run(net.trace, net.dense, net.trace.nodes[cut:], half)
    assert torch.equal(rest[net.trace.outputs[0]], whole[net.trace.outputs[0]])


@pytest.mark.slow
def test_changed_weights_change_only_their_layer(network):
    net = network(Mlp)
    inputs = read_inputs(net.model, images(3))
    node = net.trace.layers[-1].node
    weight, bias = net.dense.layers[node]
    doubled = net.dense.with_layers({node: (2 * weight, 2 * bias)})
    torch.testing.assert_close(
        graph_outputs(net.trace, doubled, inputs)[0], 2 * graph_outputs(net.trace, net.dense, inputs)[0]
    )


class Written(Chain):
    """Constants and sizes spelt out in the code."""

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x * torch.tensor(0.5)))) * torch.arange(12.0).view(12, 1, 1)
        x = F.relu(self.bn2(self.conv2(x)))
        return self.fc(x.view(x.size(0), x.size(1), -1).mean(2).view(-1, 16))


class Multiplied(nn.Module):
    """A depthwise convolution with two outputs a channel: grouped, but not depthwise in our sense."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.grouped = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 8, 3, groups=4)
        self.fc = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(F.relu(self.grouped(self.first(x))).mean((2, 3)))


class Repeated(Chain):
    """The same tensor leaves twice, together with an input and a number."""

    def forward(self, x: Tensor):
        y = super().forward(x)
        return {"a": y, "b": y, "c": 2 * y, "x": x}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Written, Multiplied, Repeated])
def test_unusual_models_run_like_the_eager_ones(kind):
    model = settled(kind())
    inputs = Inputs((images(5),), {})
    graph = trace(model, inputs)
    assert_same_outputs(model, graph, folded(graph, model), inputs)


@pytest.mark.slow
def test_keyword_inputs_are_bound_by_name_in_any_order(network):
    from networks import TwoInputs, make, two_inputs

    image, vector = two_inputs(4)
    model = make(TwoInputs)
    inputs = read_inputs(model, {"vector": vector, "label": torch.zeros(4), "image": image})
    graph = trace(model, inputs)
    assert_same_outputs(model, graph, folded(graph, model), inputs)


@pytest.mark.slow
def test_flatten_serves_narrower_maps(network):
    net = network(Flattened)
    conv, fc1, _ = net.trace.layers
    (w, b), (v, c) = net.dense.layers[conv.node], net.dense.layers[fc1.node]
    slim = net.dense.with_layers({conv.node: (w[:4], b[:4]), fc1.node: (v[:, : 4 * 9], c)})
    masked = net.dense.with_layers({fc1.node: (torch.cat([v[:, : 4 * 9], torch.zeros_like(v[:, 4 * 9 :])], 1), c)})
    inputs = read_inputs(net.model, images(6))
    torch.testing.assert_close(
        graph_outputs(net.trace, slim, inputs), graph_outputs(net.trace, masked, inputs), rtol=1e-5, atol=1e-5
    )
