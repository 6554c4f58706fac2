"""Ranks come from the singular values of the weights as they are stored."""

import pytest
import torch
from networks import Chain, Grouped, UNet

from ldrf.algebra.decomposition import rank_at
from ldrf.planning.ranks import rank_layers, unit_ranks, unit_spectra, weight_spectrum


def test_a_spectrum_is_that_of_the_svd(network):
    net = network(Chain)
    for layer in net.trace.layers:
        weight = net.model.get_submodule(layer.name).weight.detach()
        wanted = torch.linalg.svdvals(weight.flatten(1).double())
        torch.testing.assert_close(weight_spectrum(net.model, layer), wanted, rtol=1e-6, atol=1e-7)


@pytest.mark.slow
def test_a_transposed_convolution_is_read_by_its_outputs(network):
    net = network(UNet)
    layer = next(la for la in net.trace.layers if la.name == "up1")
    wanted = torch.linalg.svdvals(net.model.up1.weight.detach().transpose(0, 1).flatten(1).double())
    torch.testing.assert_close(weight_spectrum(net.model, layer), wanted, rtol=1e-6, atol=1e-7)


@pytest.mark.slow
def test_ranks_of_units_are_in_neurons(network):
    net = network(Grouped)
    spectra = unit_spectra(net.model, net.units)
    ranks = unit_ranks(net.units, spectra, 0.5)
    for unit in net.units:
        outputs = rank_at(spectra[unit.name], 0.5)
        assert 1 <= ranks[unit.name] <= unit.width
        # A neuron of several outputs counts once for all of them.
        assert ranks[unit.name] * unit.producer.outputs >= outputs * unit.width
        assert (ranks[unit.name] - 1) * unit.producer.outputs < outputs * unit.width


def test_every_layer_has_a_row_and_those_without_inputs_have_no_rank_on_data(network):
    net = network(Chain)
    analysis = rank_layers(net, {}, 0.65)
    assert [row.name for row in analysis.layers] == ["conv1", "conv2", "fc"]
    assert set(analysis.data_ranks.values()) == {None}
    assert [row.prunable for row in analysis.layers] == [True, True, False]
    assert analysis.layers[0].range == (analysis.ranks["conv1"], 12)
