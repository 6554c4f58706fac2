"""First-order Taylor terms of the loss, against autograd on the model itself."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false

import pytest
import torch
import torch.nn.functional as F
from networks import (
    Chain,
    Gated,
    Mlp,
    TwoInputs,
    images,
    make,
)
from rival_checks import CONFIG, findings

import ldrf
from ldrf.methods.molchanov2017 import score, taylor_terms


@pytest.mark.slow
def test_taylor_terms_of_halves_that_gate_each_other_add_up(network):
    """Removing a neuron removes its value and its gate: both first-order terms count."""
    net = network(Gated)
    unit, chunk = next(u for u in net.units if u.name == "both"), net.calibration.chunks[0]
    labels = torch.arange(chunk.rows) % 5
    said = {}
    hook = net.model.both.register_forward_hook(lambda _, __, out: said.update(out=out))
    loss = F.cross_entropy(net.model(*chunk.args), labels, reduction="sum")
    hook.remove()
    (slope,) = torch.autograd.grad(loss, said["out"])
    terms = (said["out"] * slope).mean(1).detach()
    expected = (terms[:, :10] + terms[:, 10:]).abs()
    torch.testing.assert_close(taylor_terms(net, chunk, labels)[unit.name], expected, rtol=1e-3, atol=1e-6)


def test_taylor_terms_are_those_of_autograd_on_the_model(network):
    net = network(Chain)
    model, chunk = net.model, net.calibration.chunks[0]
    known = findings(net).labels
    assert known is not None
    labels = known[: chunk.rows]
    first = F.relu(model.bn1(model.conv1(chunk.args[0])))
    second = F.relu(model.bn2(model.conv2(F.max_pool2d(first, 2))))
    loss = F.cross_entropy(model.fc(second.mean((2, 3))), labels, reduction="sum")
    slopes = torch.autograd.grad(loss, [first, second])
    found = taylor_terms(net, chunk, labels)
    for name, value, slope in zip(("conv1", "conv2"), (first, second), slopes, strict=True):
        expected = (value * slope).mean((2, 3)).abs().detach()
        torch.testing.assert_close(found[name], expected, rtol=1e-3, atol=1e-6)
    scores = score(net, findings(net), CONFIG)
    assert all(float(s.norm()) == pytest.approx(1) for s in scores.values())
    torch.testing.assert_close(scores["conv1"], F.normalize(found["conv1"].sum(0), dim=0), rtol=1e-3, atol=1e-6)


def test_taylor_terms_keep_what_the_loss_needs():
    """The neuron whose removal changes the loss least by first order goes first."""
    model, x = make(Mlp), images(32)
    batches = [(x[:16], torch.zeros(16, dtype=torch.long)), (x[16:], torch.ones(16, dtype=torch.long))]
    model.second.weight.data[:, 3] = 0  # nobody reads neuron 3 of the first layer
    result = ldrf.prune(model, batches, widths={"first": 15}, method="molchanov2017")
    kept = torch.tensor([i for i in range(16) if i != 3])
    assert torch.equal(result.model.first.weight, model.first.weight[kept])
    torch.testing.assert_close(result.model(x), model(x))


@pytest.mark.parametrize(
    "batch", [images(8), (images(8), torch.zeros(8)), {"x": images(8)}], ids=["x", "float", "dict"]
)
def test_taylor_needs_labels(batch):
    with pytest.raises(ldrf.LdrfError, match="'molchanov2017' needs batches with labels") as caught:
        ldrf.prune(make(Chain), [batch], widths={"conv1": 6}, method="molchanov2017")
    assert "\n" not in str(caught.value)


def test_taylor_needs_labels_of_the_models_classes(network):
    net = network(Chain)
    with pytest.raises(ldrf.LdrfError, match="needs labels from 0 to 4. Got 0 to 7 instead"):
        taylor_terms(net, net.calibration.chunks[0], torch.arange(net.calibration.chunks[0].rows) % 8)


@pytest.mark.slow
def test_taylor_needs_a_single_output_of_scores(network):
    net = network(TwoInputs)
    with pytest.raises(ldrf.LdrfError, match="needs a model with one output of scores"):
        taylor_terms(net, net.calibration.chunks[0], torch.zeros(net.calibration.chunks[0].rows, dtype=torch.long))
