"""Which columns of a reader belong to which neuron, against a reader that sees one neuron at a time."""

import pytest
import torch
from networks import Dense, Flattened
from torch import Tensor

from ldrf.units.columns import neuron_columns, neuron_sums, reader_columns
from ldrf.units.unit import Consumer, Unit


def parts(network, kind: type, name: str) -> tuple[Unit, Consumer, Tensor]:
    """A unit, its last consumer, and that consumer's flattened weight."""
    net = network(kind)
    unit = next(u for u in net.units if u.name == name)
    consumer = unit.consumers[-1]
    return unit, consumer, net.dense.affine(consumer.layer.node)[0].flatten(1)


@pytest.mark.slow
def test_columns_of_the_kept_neurons_are_those_of_a_cut_weight(network):
    unit, consumer, weight = parts(network, Flattened, "conv")
    kept = torch.tensor([1, 4, 7])
    cut = weight.view(len(weight), unit.width, 9)[:, kept].flatten(1)  # nine positions of each channel
    assert torch.equal(weight[:, reader_columns(consumer, kept)], cut)


@pytest.mark.slow
def test_columns_of_other_units_stay(network):
    unit, consumer, weight = parts(network, Dense, "conv1")
    columns = reader_columns(consumer, torch.arange(0))
    other = [i for i, neuron in enumerate(consumer.channels.tolist()) if neuron < 0]
    assert columns.tolist() == other and len(other) == weight.shape[1] - unit.width


def test_every_column_belongs_to_one_neuron(network):
    unit, consumer, weight = parts(network, Flattened, "conv")
    columns = neuron_columns(consumer, unit.width)
    assert columns.shape == (unit.width, 9) and sorted(columns.flatten().tolist()) == list(range(weight.shape[1]))
    for neuron in range(unit.width):
        own = reader_columns(consumer, torch.tensor([neuron]))
        assert columns[neuron].tolist() == own.tolist()


@pytest.mark.slow
def test_sums_over_places_are_sums_of_their_neurons(network):
    unit, consumer, _ = parts(network, Dense, "stem")
    values = torch.randn(3, len(consumer.channels))
    sums = neuron_sums(values, consumer.channels, unit.width)
    for neuron in range(unit.width):
        own = torch.as_tensor(consumer.channels == neuron)
        torch.testing.assert_close(sums[:, neuron], values[:, own].sum(1))
