"""Filters with the largest l1 norm stay, as they are stored."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false

import pytest
import torch
from networks import (
    Chain,
    Grouped,
    Mlp,
    UNet,
)
from rival_checks import halves, kept_filters, same

import ldrf
from ldrf.methods.li2017 import filter_norms
from ldrf.methods.liu2017 import norm_scales


@pytest.mark.slow
def test_a_neuron_of_several_outputs_has_the_sum_of_their_scores(network):
    net = network(Grouped)
    unit = next(u for u in net.units if u.name == "conv1")
    assert unit.width < unit.producer.outputs
    one = torch.zeros(unit.width, len(unit.neuron_of_output))
    one[torch.as_tensor(unit.neuron_of_output), torch.arange(len(unit.neuron_of_output))] = 1
    norms, scales = net.model.conv1.weight.detach().abs().sum((1, 2, 3)), net.model.bn1.weight.detach().abs()
    torch.testing.assert_close(filter_norms(net, unit), one @ norms)
    torch.testing.assert_close(norm_scales(net, unit), one @ scales)


@pytest.mark.slow
def test_filter_norms_of_a_transposed_convolution_are_those_of_its_outputs(network):
    net = network(UNet)
    unit = next(u for u in net.units if u.name == "up1")
    torch.testing.assert_close(filter_norms(net, unit), net.model.up1.weight.detach().abs().sum((0, 2, 3)))


def test_filter_norms_are_the_engines_where_no_norm_follows(network, prune_known):
    widths = halves(network(Mlp))
    config = ldrf.PruneConfig(solver="none", selection="weight")
    assert same(
        prune_known(Mlp, widths=widths, method="li2017").model, prune_known(Mlp, widths=widths, config=config).model
    )


def test_filter_norms_and_norm_scales_are_the_stored_ones(network, prune_known):
    net = network(Chain)
    norms, scales = net.model.conv2.weight.detach().abs().sum((1, 2, 3)), net.model.bn2.weight.detach().abs()
    for name, scores in (("li2017", norms), ("liu2017", scales)):
        result = prune_known(Chain, widths={"conv2": 6}, method=name)
        assert kept_filters(result, net, "conv2") == scores.argsort(descending=True)[:6].sort().values.tolist()
