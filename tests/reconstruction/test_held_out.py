"""Errors on held-out images are those of the networks themselves, relative to the power of the dense outputs."""

from dataclasses import replace

import pytest
import torch
from half_cut import half_cut
from networks import Chain, Residual, UNet
from torch import nn

from ldrf.reconstruction import held_out
from ldrf.reconstruction.held_out import held_out_errors


@pytest.mark.parametrize("kind", [Chain, Residual, UNet])
def test_errors_are_those_of_plain_algebra_on_held_out_images(kind: type[nn.Module]):
    network, walk = half_cut(kind)
    dense = network.dense
    doubled = dense.with_layers(
        {la.node: (2 * w, b) for la in network.trace.layers[-1:] for w, b in [dense.layers[la.node]]}
    )
    none, cut, twice = held_out_errors(network, (dense, walk.slim, doubled))
    assert none == 0 < cut
    given = network.calibration.chunks
    images = torch.cat([given[i].args[0] for i in sorted(network.calibration.held_out)])
    last = network.model.get_submodule(network.trace.layers[-1].name)
    with torch.no_grad():
        wanted = network.model(images).double()
        assert isinstance(last.weight, torch.Tensor)
        kept = last.weight.clone()
        last.weight.mul_(2)
        changed = network.model(images).double()
        last.weight.copy_(kept)
    assert twice == pytest.approx(float((changed - wanted).square().sum() / wanted.square().sum()), rel=1e-3)


def test_large_outputs_are_compared_image_by_image(monkeypatch: pytest.MonkeyPatch):
    network, walk = half_cut(Residual)
    at_once = held_out_errors(network, (walk.slim,))
    monkeypatch.setattr(held_out, "LARGE", 1)
    assert held_out_errors(network, (walk.slim,)) == pytest.approx(at_once)


def test_what_is_not_a_number_is_no_error_of_0():
    network, walk = half_cut(Chain)
    weight, bias = walk.slim.layers[network.trace.layers[0].node]
    broken = replace(walk.slim).with_layers({network.trace.layers[0].node: (weight * float("nan"), bias)})
    error = held_out_errors(network, (broken,))[0]
    assert not error < float("inf")
