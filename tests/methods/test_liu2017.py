"""Neurons with the largest scale of their BatchNorm stay."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false

import torch
from networks import (
    Carriers,
)

from ldrf.methods.liu2017 import norm_scales


def test_norm_scales_are_found_behind_linear_layers_and_missed_where_there_are_none(network):
    net = network(Carriers)
    found = {unit.name: norm_scales(net, unit) for unit in net.units}
    assert found["conv1"] is None and found["conv2"] is None
    assert torch.equal(found["fc1"], net.model.bn2.weight.detach().abs())
