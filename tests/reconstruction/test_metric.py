"""Metrics of the reconstruction: checked against the covariance of real outputs and against dense algebra."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false

from dataclasses import replace

import pytest
import torch
from networks import Chain, Dense, Inverted, Residual, UNet, images, make

import ldrf
from ldrf.calibration.survey import survey
from ldrf.reconstruction import metric
from ldrf.reconstruction.metric import embedding_metric, gradient_metrics, measured, unit_metrics
from ldrf.runtime.progress import progress
from ldrf.tracing.interpreter import run
from ldrf.tracing.patches import input_rows

CONFIG = ldrf.PruneConfig(steps=10, joint_steps=20)


@pytest.fixture
def surveyed(network):
    net = network(Chain)
    return net, survey(net.trace, net.dense, net.units, net.calibration, 0, progress)


def outputs_of(net, consumer) -> torch.Tensor:
    """Rows [r, o] of a consumer's dense output on the fitting images."""
    rows = []
    for index in net.calibration.fitting:
        chunk = net.calibration.chunks[index]
        values = run(net.trace, net.dense, net.trace.nodes, dict(zip(net.trace.inputs, chunk.args, strict=False)))
        node = next(n for n in net.trace.nodes if n.name == consumer.layer.node)
        weight, bias = net.dense.affine(consumer.layer.node)
        x = input_rows(consumer.layer, values[node.args[0].name], None).double()
        rows.append(x @ weight.flatten(1).T.double() + bias.double())
    return torch.cat(rows)


@pytest.mark.parametrize("dim", [1, -1])
def test_a_difference_is_weighed_along_its_channels(dim):
    torch.manual_seed(0)
    gap, scale, matrix = torch.randn(4, 6, 3, 6), torch.rand(6), torch.randn(2, 6)
    moved = gap.movedim(dim, -1).reshape(-1, 6)
    torch.testing.assert_close(measured(gap, scale, dim).reshape(-1, 6), moved @ torch.diag(scale))
    torch.testing.assert_close(measured(gap, matrix, dim).reshape(-1, 2), moved @ matrix.T)


@pytest.mark.parametrize("with_data", [False, True])
@pytest.mark.parametrize("kind", [Chain, Dense, UNet])
def test_an_embedding_has_variance_one(network, kind, with_data):
    """Also where the consumer reads other units too, and where it is a transposed convolution."""
    net = network(kind)
    surveys = survey(net.trace, net.dense, net.units, net.calibration, 0, progress)
    for consumer, moments in ((c, surveys[u.name].moments[i]) for u in net.units for i, c in enumerate(u.consumers)):
        found = embedding_metric(net, consumer, moments, with_data)
        assert 1 <= len(found) <= consumer.layer.outputs == found.shape[1]
        variance = (outputs_of(net, consumer) @ found.T.double()).var(0, correction=0)
        torch.testing.assert_close(variance, torch.ones(len(found)).double(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", ["gradient", "embedding"])
def test_a_metric_follows_the_outputs_that_are_left(kind):
    """The stream is cut first, so the branch that closes on it has fewer outputs than the metric was made for."""
    config = ldrf.PruneConfig(coupled=True, solver="closed-form", metric=kind)
    result = ldrf.prune(make(Inverted), [images(32)], widths={"stem": 3, "expand": 9}, config=config)
    assert result.model.project.out_channels == 3
    assert [h.name for h in result.history] == ["stem", "expand"]
    assert result.history[1].error < result.history[1].cut_error


def test_the_data_aware_embedding_is_uncorrelated(surveyed, monkeypatch):
    monkeypatch.setattr(metric, "ENERGY", 1.0)
    net, surveys = surveyed
    unit = net.units[0]
    found = embedding_metric(net, unit.consumers[0], surveys[unit.name].moments[0], with_data=True)
    embedding = outputs_of(net, unit.consumers[0]) @ found.T.double()
    torch.testing.assert_close(torch.cov(embedding.T), torch.eye(len(found)).double(), rtol=1e-2, atol=1e-2)


def test_gradients_weigh_an_output_by_what_it_does_to_the_logits(network):
    net = network(Chain)
    consumer = net.units[-1].consumers[0]  # the last linear layer: every logit has the gradient of its own mixture
    found = gradient_metrics(net, {consumer.goal: consumer})[consumer.goal]
    assert found.shape == (consumer.layer.outputs,)
    assert float(found.square().mean()) == pytest.approx(1, rel=1e-5)
    assert float(found.square().min()) >= metric.FLOOR


@pytest.mark.parametrize("kind", ["gradient", "output", "embedding", "embedding-data"])
def test_every_metric_repairs_what_cutting_broke(prune_known, network, kind):
    widths = {u.name: max(1, u.width // 2) for u in network(Residual).units}
    result = prune_known(Residual, widths=widths, config=replace(CONFIG, metric=kind))
    assert all(unit.error < unit.cut_error for unit in result.history)
    assert all(torch.isfinite(p).all() for p in result.model.parameters())


def test_an_unknown_metric_is_named():
    with pytest.raises(ldrf.LdrfError, match=r"'metric' must be one of gradient, .* Got 'mse'"):
        ldrf.PruneConfig(metric="mse")


def test_all_outputs_count_alike_in_the_output_metric(surveyed):
    net, surveys = surveyed
    found = unit_metrics(net, surveys, replace(CONFIG, metric="output"))
    assert all(torch.equal(m, torch.ones_like(m)) for m in found.values())
    assert set(found) == {c.goal for u in net.units for c in u.consumers}
