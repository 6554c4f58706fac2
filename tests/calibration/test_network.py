"""A network is read once: its trace knows the units' walk, its coupled widths wait, and bad input is named."""

import pytest
import torch
from networks import Bottleneck, Chain, Heads, images, make, settled
from torch import nn

from ldrf.calibration.network import check_prunable, read_network, with_coupled
from ldrf.config import PruneConfig
from ldrf.errors import LdrfError


@pytest.mark.slow
def test_the_trace_of_a_network_is_that_of_the_walk_that_was_chosen():
    """Of heads that are counted, whole ones go: the view that splits them shrinks in its last dimension but one."""
    net = read_network(settled(Heads()), [images(4)], (), PruneConfig())
    (unit,) = [u for u in net.units if u.name == "q"]
    heads = {net.trace.node(name).meta["val"].shape[dim] for name, (_, dim) in net.trace.channel_dims.items()}
    assert unit.width == 4 and unit.width in heads


@pytest.mark.slow
def test_coupled_widths_wait_until_they_are_asked_for():
    net = read_network(make(Bottleneck), [images(4)], (), PruneConfig())
    (coupled,) = net.coupled
    whole = with_coupled(net)
    assert coupled.name not in {u.name for u in net.units} and not whole.coupled
    assert {u.name for u in whole.units} == {u.name for u in net.units} | {coupled.name}
    assert [u.start for u in whole.units] == sorted(u.start for u in whole.units)
    waiting = {s.name for s in net.skipped} - {s.name for s in whole.skipped}
    assert waiting == set(coupled.makers)


def test_the_users_model_is_not_touched():
    model = make(Chain).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    net = read_network(model, [images(4)], (), PruneConfig())
    assert net.model is model and model.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize(
    ("batches", "told"),
    [
        ([images(4), images(4, shape=(3, 6, 6))], "same sizes and kinds"),
        ([images(4, shape=(2, 8, 8))], "Chain cannot take a calibration batch"),
    ],
)
def test_batches_that_do_not_fit_are_named(batches, told):
    with pytest.raises(LdrfError, match=told):
        read_network(make(Chain), batches, (), PruneConfig())


def test_weights_that_are_no_numbers_are_named_by_their_layer():
    model = make(Chain)
    model.get_parameter("conv2.weight").data[0] = float("nan")
    with pytest.raises(LdrfError, match="weights of layer 'conv2' must be finite"):
        read_network(model, [images(4)], (), PruneConfig())


def test_a_network_without_units_is_refused_with_the_reason():
    net = read_network(nn.Sequential(nn.Flatten(), nn.Linear(192, 4)), [images(4)], (), PruneConfig())
    with pytest.raises(LdrfError, match="has no prunable layer .*'1': it is an output of the model"):
        check_prunable(net)
    check_prunable(read_network(make(Chain), [images(4)], (), PruneConfig()))
