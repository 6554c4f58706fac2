"""The slim model: same class, depth and names, norms restored, and everything else of the user's left as it was."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false

import copy

import pytest
import torch
import torch.nn.functional as F
from networks import CASES, Carriers, Case, Chain, Inverted, Normed, Residual, VitBlock, images, make
from torch import nn
from torch.utils._pytree import tree_leaves

import ldrf
from ldrf.inputs import read_inputs
from ldrf.recomposition.recompose import OutputStatistics, _restored, output_statistics
from ldrf.tracing.interpreter import folded, run
from ldrf.tracing.layer import Layer, Norm
from ldrf.tracing.lean_run import input_values
from ldrf.tracing.trace import trace
from ldrf.units.indices import stays
from ldrf.units.module_surgery import cut_plainly, write_tensors

FAST = ldrf.PruneConfig(solver="closed-form", energy=0.2)
SOUND = CASES


def outputs(model: nn.Module, batch) -> list[torch.Tensor]:
    with torch.no_grad():
        return tree_leaves(read_inputs(model, batch).call(model))


@pytest.mark.parametrize("case", SOUND, ids=str)
def test_same_class_depth_and_names_with_narrower_tensors(pruned, network, case: Case):
    result, dense = pruned(case.kind), make(case.kind)
    slim = result.model
    assert type(slim) is type(dense)
    assert [(n, type(m)) for n, m in slim.named_modules()] == [(n, type(m)) for n, m in dense.named_modules()]
    assert list(slim.state_dict()) == list(dense.state_dict())
    shapes = {n: t.shape for n, t in dense.state_dict().items()}
    narrower = [n for n, t in slim.state_dict().items() if t.shape != shapes[n]]
    assert narrower and all(
        all(a <= b for a, b in zip(t.shape, shapes[n], strict=True)) for n, t in slim.state_dict().items()
    )
    for unit in network(case.kind).units:
        width = result.widths[unit.name]
        assert width == max(1, result.full_widths[unit.name] // 2)
        if (unit.neuron_of_output >= 0).all():  # no other unit cuts its producer
            rows = slim.get_submodule(unit.name).weight.shape[unit.producer.row_dim]
            assert rows == len(unit.neuron_of_output) * width // unit.width


@pytest.mark.parametrize("case", SOUND, ids=str)
def test_modules_state_the_sizes_they_have(pruned, case: Case):
    for module in pruned(case.kind).model.modules():
        if isinstance(module, nn.modules.conv._ConvNd):
            rows, columns = module.out_channels, module.in_channels
            rows, columns = (columns, rows) if module.transposed else (rows, columns)
            size = (rows, columns // module.groups, *module.kernel_size)
            assert module.weight.shape == size
        elif isinstance(module, nn.Linear):
            assert module.weight.shape == (module.out_features, module.in_features)
        elif isinstance(module, nn.modules.batchnorm._BatchNorm):
            assert module.running_mean is not None and len(module.running_mean) == module.num_features
        elif isinstance(module, nn.PReLU):
            assert module.num_parameters == len(module.weight)


@pytest.mark.parametrize("kind", [Chain, Residual, Inverted, Carriers])
def test_norms_are_restored_so_that_eval_computes_the_folded_weights(network, kind):
    """Layer and norm of the recomposed model against the folded affine map, for random folded weights."""
    net = network(kind)
    for layer in net.trace.layers:
        if layer.norm is None:
            continue
        torch.manual_seed(0)
        copied = copy.deepcopy(net.model)
        weight, bias = torch.randn_like(net.dense.layers[layer.node][0]), torch.randn(layer.outputs)
        statistics = OutputStatistics(torch.randn(layer.outputs), torch.rand(layer.outputs))
        write_tensors(copied, _restored(layer, (weight, bias), statistics))
        x = torch.randn(4, layer.inputs, 8, 8)
        both = nn.Sequential(copied.get_submodule(layer.name), copied.get_submodule(layer.norm.module)).eval()
        expected = F.conv2d(x, weight, bias, layer.stride, layer.padding, layer.dilation, layer.groups)  # pyright: ignore
        with torch.no_grad():
            torch.testing.assert_close(both(x), expected, rtol=1e-4, atol=1e-4)


def test_restored_norms_carry_the_statistics_of_the_raw_output(network):
    net = network(Chain)
    layer = net.trace.layers[0]
    found = output_statistics(net.trace, net.dense, {layer.node}, net.calibration)[layer.node]
    x = torch.cat([c.args[0] for c in net.calibration.chunks])
    raw = F.conv2d(x, net.dense.layers[layer.node][0], None, padding=1)
    torch.testing.assert_close(found.mean, raw.mean((0, 2, 3)), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found.var, raw.var((0, 2, 3), correction=0), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", [Chain, Residual, Inverted])
def test_train_mode_sees_nearly_the_same_as_eval_on_calibration_images(pruned, kind):
    """Fresh statistics: normalising by the batch is close to normalising by the running figures."""
    slim = copy.deepcopy(pruned(kind).model)
    x = images(48)
    with torch.no_grad():
        settled, live = slim.eval()(x), slim.train()(x)
    assert (settled - live).square().mean() < 0.05 * settled.var()


@pytest.mark.parametrize("kind", [Chain, Residual, Inverted, VitBlock, Carriers])
def test_the_slim_model_takes_training_steps(pruned, kind):
    slim = copy.deepcopy(pruned(kind).model).train()
    optimiser = torch.optim.SGD(slim.parameters(), lr=0.01)
    x, labels = images(16), torch.arange(16) % 5
    losses = []
    for _ in range(8):
        loss = F.cross_entropy(slim(x), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in slim.parameters())
    assert losses[-1] < losses[0] < 100


@pytest.mark.slow
def test_the_users_model_is_untouched_in_every_bit():
    model = make(Residual).train()
    for parameter in model.block1.parameters():
        parameter.requires_grad_(False)
    before = {n: t.clone() for n, t in model.state_dict().items()}
    flags = {n: p.requires_grad for n, p in model.named_parameters()}
    result = ldrf.prune(model, [images(24)], widths={"block1.conv1": 4}, config=FAST)
    assert all(torch.equal(before[n], t) for n, t in model.state_dict().items())
    assert model.training and all(m.training for m in model.modules())
    assert result.model.training and all(m.training for m in result.model.modules())
    assert {n: p.requires_grad for n, p in model.named_parameters()} == flags
    assert {n: p.requires_grad for n, p in result.model.named_parameters()} == flags
    pointers = {t.data_ptr() for t in model.state_dict().values()}
    assert not pointers & {t.data_ptr() for t in result.model.state_dict().values()}
    assert all(p.grad is None for p in (*model.parameters(), *result.model.parameters()))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_the_dtype_is_kept(dtype):
    model = make(Chain).to(dtype)
    slim = ldrf.prune(model, [images(24).to(dtype)], widths={"conv1": 6}, config=FAST).model
    floating = [t for t in slim.state_dict().values() if t.is_floating_point()]
    assert {t.dtype for t in floating} == {dtype}
    assert slim.conv1.out_channels == 6
    assert torch.isfinite(slim.float()(images(2))).all()


@pytest.mark.slow
def test_channels_last_is_kept_and_changes_nothing():
    plain = make(Residual)
    last = make(Residual).to(memory_format=torch.channels_last)
    widths = {"block1.conv1": 4}
    one = ldrf.prune(plain, [images(24)], widths=widths, config=FAST).model
    other = ldrf.prune(last, [images(24).to(memory_format=torch.channels_last)], widths=widths, config=FAST).model
    assert other.block1.conv1.weight.is_contiguous(memory_format=torch.channels_last)
    assert not other.block1.conv1.weight.is_contiguous()
    torch.testing.assert_close(one(images(4)), other(images(4)), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("case", [c for c in CASES if c.kind is not Normed], ids=str)
def test_plain_cutting_equals_zeroed_columns(network, case: Case):
    net = network(case.kind)
    slim, masked = copy.deepcopy(net.model), copy.deepcopy(net.model)
    kept = {u.name: torch.arange(0, u.width, 2) for u in net.units}
    cut_plainly(slim, net.units, kept)
    for unit in net.units:
        for consumer in unit.consumers:
            gone = (~stays(consumer.channels, kept[unit.name])).nonzero()[0]
            weight = masked.get_submodule(consumer.layer.name).weight.data
            weight.index_fill_(1 - consumer.layer.row_dim, torch.as_tensor(gone), 0)
    batch = case.batch(5)
    torch.testing.assert_close(outputs(slim, batch), outputs(masked, batch), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_the_slim_graph_is_the_slim_model(network, pruned):
    """Folding the slim model again and interpreting it gives what the eager slim model gives."""
    for kind in (Chain, Carriers):
        slim = pruned(kind).model
        inputs = read_inputs(slim, images(3))
        graph = trace(slim, inputs)
        values = run(graph, folded(graph, slim), graph.nodes, input_values(graph, inputs))
        torch.testing.assert_close(values[graph.outputs[0]], slim(images(3)), rtol=1e-4, atol=1e-4)


def test_a_layer_without_norm_and_bias_gets_its_weight_alone():
    layer = Layer("fc", "fc", "fc.weight", None, None, (), (), (), (), 1, 3, 2, 1)
    assert set(_restored(layer, (torch.randn(2, 3), None), None)) == {"fc.weight"}
    norm = Norm("n", None, None, "bn.running_mean", "bn.running_var", 1e-5)
    layer = Layer("c", "c", "c.weight", "c.bias", norm, (1, 1), (1, 1), (0, 0), (1, 1), 1, 3, 2, 1)
    found = _restored(layer, (torch.randn(2, 3, 1, 1), torch.ones(2)), None)
    assert torch.equal(found["bn.running_mean"], -torch.ones(2)) and torch.equal(found["c.bias"], torch.zeros(2))
