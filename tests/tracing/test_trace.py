"""The interpreter computes what the eager model computes, on the right tensors, with norms folded."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from networks import CASES, Branches, Carriers, Case, Chain, Flattened, Inverted, Mlp, Residual, images, settled
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import ldrf
from ldrf.errors import LdrfError
from ldrf.inputs import Inputs, read_inputs
from ldrf.tracing.counting import count_macs
from ldrf.tracing.export import working_copy
from ldrf.tracing.interpreter import fold, folded, read_tensor, run
from ldrf.tracing.layer import Norm
from ldrf.tracing.lean_run import input_values
from ldrf.tracing.trace import trace


def interpreted(graph, weights, inputs: Inputs) -> list[Tensor]:
    values = run(graph, weights, graph.nodes, input_values(graph, inputs))
    return [values[name] for name in graph.outputs]


def assert_same_outputs(model: nn.Module, graph, weights, inputs: Inputs) -> None:
    with torch.no_grad():
        expected = tree_leaves(inputs.call(model))
        found = interpreted(graph, weights, inputs)
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("rows", [1, 7])
def test_interpreter_equals_the_eager_model_at_any_batch_size(network, case: Case, rows):
    net = network(case.kind)
    assert_same_outputs(net.model, net.trace, net.dense, read_inputs(net.model, case.batch(rows)))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_layer_names_the_tensor_it_uses(network, case: Case):
    net = network(case.kind)
    modules = {n: m for n, m in net.model.named_modules() if isinstance(m, nn.modules.conv._ConvNd | nn.Linear)}
    assert {layer.name for layer in net.trace.layers} <= set(modules)
    assert len(net.trace.layers) >= len({id(m.weight) for m in modules.values()})
    for layer in net.trace.layers:
        module = modules[layer.name]
        assert read_tensor(net.model, layer.weight) is module.weight
        assert (layer.bias is None) == (module.bias is None)
        assert layer.outputs == module.weight.shape[layer.row_dim]
        assert layer.inputs == module.weight.shape[1 - layer.row_dim] * layer.groups


def test_a_batchnorm_behind_a_convolution_is_folded_and_others_are_not(network):
    norms = {la.name: la.norm.module if la.norm else None for la in network(Chain).trace.layers}
    assert norms == {"conv1": "bn1", "conv2": "bn2", "fc": None}
    norms = {la.name: la.norm and la.norm.module for la in network(Carriers).trace.layers}
    assert norms == {"conv1": "bn1", "conv2": None, "fc1": None, "fc2": None}


def test_geometry_of_layers(network):
    layers = {la.name: la for la in network(Inverted).trace.layers}
    assert layers["stem"].stride == (2, 2) and layers["stem"].positions == 16
    assert layers["depth"].is_depthwise and layers["depth"].groups == 18
    assert not layers["expand"].is_depthwise
    assert layers["fc"].is_linear and layers["fc"].positions == 1


def test_calls_of_a_shared_weight_are_counted():
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x):
            return self.fc(self.fc(self.fc(x)))

    graph = trace(Shared().eval(), Inputs((torch.randn(3, 4),), {}))
    assert graph.called["fc.weight"] == 3
    assert [layer.name for layer in graph.layers] == ["fc"] * 3


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


def test_changed_weights_change_only_their_layer(network):
    net = network(Mlp)
    inputs = read_inputs(net.model, images(3))
    node = net.trace.layers[-1].node
    weight, bias = net.dense.layers[node]
    doubled = net.dense.with_layers({node: (2 * weight, 2 * bias)})
    torch.testing.assert_close(
        interpreted(net.trace, doubled, inputs)[0], 2 * interpreted(net.trace, net.dense, inputs)[0]
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


@pytest.mark.parametrize("kind", [Written, Multiplied, Repeated])
def test_unusual_models_run_like_the_eager_ones(kind):
    model = settled(kind())
    inputs = Inputs((images(5),), {})
    graph = trace(model, inputs)
    assert_same_outputs(model, graph, folded(graph, model), inputs)


def test_keyword_inputs_are_bound_by_name_in_any_order(network):
    from networks import TwoInputs, make, two_inputs

    image, vector = two_inputs(4)
    model = make(TwoInputs)
    inputs = read_inputs(model, {"vector": vector, "label": torch.zeros(4), "image": image})
    graph = trace(model, inputs)
    assert_same_outputs(model, graph, folded(graph, model), inputs)


def test_an_untraceable_model_is_refused_with_the_line():
    class Undecided(nn.Module):
        def forward(self, x):
            if x.sum() > 0:  # the line
                x = 2 * x
            return x

    with pytest.raises(LdrfError, match=r"torch.export cannot trace Undecided at .*test_tracing.py:\d+ \(if x.sum\(\)"):
        trace(Undecided(), Inputs((images(3),), {}))


def test_working_copy_is_another_model_in_eval_mode_and_float32():
    model = Branches().half().train()
    copied = working_copy(model)
    assert not copied.training and model.training
    assert copied.trunk.weight.dtype is torch.float32 and model.trunk.weight.dtype is torch.float16
    assert torch.equal(copied.trunk.weight.half(), model.trunk.weight)


def test_flatten_serves_narrower_maps(network):
    net = network(Flattened)
    conv, fc1, _ = net.trace.layers
    (w, b), (v, c) = net.dense.layers[conv.node], net.dense.layers[fc1.node]
    slim = net.dense.with_layers({conv.node: (w[:4], b[:4]), fc1.node: (v[:, : 4 * 9], c)})
    masked = net.dense.with_layers({fc1.node: (torch.cat([v[:, : 4 * 9], torch.zeros_like(v[:, 4 * 9 :])], 1), c)})
    inputs = read_inputs(net.model, images(6))
    torch.testing.assert_close(
        interpreted(net.trace, slim, inputs), interpreted(net.trace, masked, inputs), rtol=1e-5, atol=1e-5
    )


class TokensFirst(nn.Module):
    """Its first layer reads [tokens, batch, channels], its second [batch, tokens, channels]."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x.transpose(0, 1))).transpose(0, 1))


def test_calls_are_those_of_one_example_wherever_the_batch_is_counted():
    found = trace(TokensFirst().eval(), Inputs((torch.randn(2, 5, 4),), {}))
    assert [layer.calls for layer in found.layers] == [5, 5]


class FixedTable(nn.Module):
    """A small network reads a table that the model keeps, as relative positions are made in SwinV2."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.randn(1, 7, 2))
        self.table_net = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
        self.net = nn.Sequential(nn.Linear(7, 9), nn.ReLU(), nn.Linear(9, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x + self.table_net(self.table).flatten(1))


def test_what_does_not_depend_on_the_images_is_no_layer():
    model = FixedTable().eval()
    assert [layer.name for layer in trace(model, Inputs((torch.randn(2, 7),), {})).layers] == ["net.0", "net.2"]
    reasons = {s.name: s.reason for s in ldrf.inspect(model, [torch.randn(8, 7)]).skipped}
    assert reasons["table_net.0"] == "it reads tensors of the model, not its inputs"
    result = ldrf.prune(model, [torch.randn(64, 7)], widths={"net.0": 5}, config=ldrf.PruneConfig(steps=3))
    assert result.widths == {"net.0": 5}


class Counting(nn.Module):
    """Its code turns the number of images into a plain one."""

    def __init__(self, count: Callable[[Tensor], int]) -> None:
        super().__init__()
        self.count = count
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8 * 16, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).relu().reshape(self.count(x), -1))


@pytest.mark.parametrize("count", [len, lambda x: int(x.shape[0]), lambda x: x.size()[0]], ids=["len", "int", "size"])
def test_a_batch_that_the_code_counts_stays_free(count):
    model = Counting(count)
    found = ldrf.inspect(model, [images(6, shape=(3, 4, 4))])
    assert found.macs == count_macs(model, Inputs((images(1, shape=(3, 4, 4)),), {}))
    assert found.share == 1.0 and found.speedup > 1
    result = ldrf.prune(model, [images(20, shape=(3, 4, 4))], widths={"first": 4}, config=ldrf.PruneConfig(steps=2))
    assert result.model(images(7, shape=(3, 4, 4))).shape == (7, 5)


def test_a_batch_that_cannot_be_free_is_told():
    with pytest.raises(LdrfError, match=r"forward of Counting makes a plain number of the batch size.*x\.shape\[0\]"):
        ldrf.prune(Counting(lambda x: len(list(x))), [images(20, shape=(3, 4, 4))], widths={"first": 4})


class Wrapped(nn.Module):
    """Hands on whatever it is given, as torch's own wrappers do."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3))

    def forward(self, *args: Tensor, **kwargs: Tensor) -> Tensor:
        return self.net(*args, **kwargs)


def test_wrappers_and_parallel_models_are_traced():
    config = ldrf.PruneConfig(steps=2, joint_steps=2)
    for model, name in ((Wrapped(), "net.0"), (nn.DataParallel(Wrapped().net), "module.0")):
        result = ldrf.prune(model, [images(12)], widths={name: 4}, config=config)
        assert type(result.model) is type(model) and result.model(images(3)).shape[1] == 4


class ByName(nn.Module):
    """Takes all, or all but the first, of its inputs by whatever name they come."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.last = nn.Linear(8, 16), nn.Linear(3, 16), nn.Linear(16, 4)

    def forward(self, **given: Tensor) -> Tensor:
        return self.last(F.relu(self.one(given["x"])) * torch.sigmoid(self.two(given["y"])))


class PartlyByName(ByName):
    def forward(self, x: Tensor, **given: Tensor) -> Tensor:
        return super().forward(x=x, **given)


@pytest.mark.parametrize("kind", [ByName, PartlyByName])
@pytest.mark.parametrize("order", ["xy", "yx"])
def test_models_that_take_keywords_of_any_name_are_pruned_and_exported(kind, order, tmp_path):
    inputs = {"x": torch.randn(40, 8), "y": torch.randn(40, 3)}
    batch, model = {name: inputs[name] for name in order}, kind()
    graph = trace(model, read_inputs(model, batch))
    assert_same_outputs(model, graph, folded(graph, model), read_inputs(model, batch))
    result = ldrf.prune(model, [batch], widths={"one": 9}, config=ldrf.PruneConfig(steps=2, joint_steps=2))
    assert type(result.model) is kind and "forward" not in vars(result.model) and "forward" not in vars(model)
    assert result.model(**batch).shape == (40, 4) and result.model.two.out_features == 9
    for name in ("slim.pt2", "slim.onnx"):
        ldrf.export(result, tmp_path / name)  # which compares it with the model


def test_a_model_that_cannot_be_copied_is_refused_with_the_way_out():
    layer = nn.Linear(3, 3)
    with pytest.warns(FutureWarning):
        layer = nn.utils.weight_norm(layer)
    model = nn.Sequential(layer, nn.ReLU(), nn.Linear(3, 3))
    model(torch.randn(2, 3))
    with pytest.raises(LdrfError, match=r"Sequential cannot be copied.*remove_weight_norm"):
        working_copy(model)
