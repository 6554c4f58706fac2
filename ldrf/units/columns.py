"""Which columns of a reader's flattened weight, or places of a vector, belong to which neuron."""

import math

import numpy as np
import torch
from torch import Tensor

from ldrf.units.indices import places
from ldrf.units.unit import Consumer


def reader_columns(consumer: Consumer, kept: Tensor) -> Tensor:
    """Columns of a consumer's flattened weight that stay: those of kept neurons, and those of other units."""
    size = math.prod(consumer.layer.kernel)
    inputs = places(consumer.channels, kept)
    return (inputs[:, None] * size + torch.arange(size)).flatten()


def neuron_columns(consumer: Consumer, width: int) -> Tensor:
    """Columns of the consumer's flattened weight behind each neuron [n, g], -1 where one has fewer than others."""
    size = math.prod(consumer.layer.kernel)
    owned: list[list[int]] = [[] for _ in range(width)]
    for place, neuron in enumerate(consumer.channels.tolist()):
        if neuron >= 0:
            owned[neuron] += range(place * size, (place + 1) * size)
    most = max(map(len, owned))
    filled = [columns + [-1] * (most - len(columns)) for columns in owned]
    return torch.tensor(filled, dtype=torch.long).view(width, most)


def neuron_sums(values: Tensor, ids: np.ndarray, width: int) -> Tensor:
    """Values of places [..., p] summed into the neurons behind them [..., n]; a place of no neuron has -1."""
    own = torch.as_tensor((ids >= 0).nonzero()[0])
    owner = torch.as_tensor(ids)[own].to(values.device)
    return values.new_zeros(*values.shape[:-1], width).index_add(-1, owner, values[..., own])
