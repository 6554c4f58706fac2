"""Which neurons stay, by each criterion of Tab. 2, against scores computed from the eager model."""

import pytest
import torch
import torch.nn.functional as F
from networks import Chain

from ldrf.calibration.survey import survey
from ldrf.config import PruneConfig
from ldrf.planning.curves import removal_curve
from ldrf.planning.selection import neuron_scores, select


@pytest.fixture(scope="module")
def chain(network):
    net = network(Chain)
    unit = net.units[0]
    seen = survey(net.trace, net.dense, net.units, net.calibration, 0, lambda items, what: items)[unit.name]
    return net, unit, seen, removal_curve(net, unit, seen, PruneConfig())


def pick(chain, criterion, width, seed=0):
    net, unit, seen, removal = chain
    return select(criterion, unit, width, net.dense, seen, removal, seed).tolist()


@pytest.mark.parametrize("criterion", ["second-order", "top-k", "random", "apoz", "activation", "weight"])
def test_kept_neurons_are_distinct_and_sorted(chain, criterion):
    for width in (1, 5, 11):
        kept = pick(chain, criterion, width)
        assert kept == sorted(set(kept)) and len(kept) == width and set(kept) <= set(range(12))
    assert pick(chain, criterion, 12) == list(range(12))


def test_top_k_keeps_the_first(chain):
    assert pick(chain, "top-k", 4) == [0, 1, 2, 3]


def test_random_follows_the_seed(chain):
    assert pick(chain, "random", 5, 1) == pick(chain, "random", 5, 1)
    assert len({tuple(pick(chain, "random", 5, seed)) for seed in range(6)}) > 1


def test_weight_keeps_the_largest_filters(chain):
    net = chain[0]
    sizes = net.dense.layers[net.units[0].producer.node][0].abs().sum((1, 2, 3))
    assert pick(chain, "weight", 4) == sorted(sizes.topk(4).indices.tolist())


def test_second_order_keeps_the_last_removed(chain):
    assert pick(chain, "second-order", 4) == sorted(chain[3].order[-4:].tolist())


@pytest.mark.parametrize("criterion", ["activation", "apoz"])
def test_scores_from_activations_rank_as_the_eager_models(chain, criterion):
    """The survey sees the padded patches of the next convolution, so only the order is compared, on clear gaps."""
    net, unit, seen, _ = chain
    inputs = torch.cat([net.calibration.chunks[i].args[0] for i in net.calibration.fitting])
    with torch.no_grad():
        model = net.model
        x = F.max_pool2d(F.relu(model.bn1(model.conv1(inputs))), 2)
    oracle = x.mean((0, 2, 3)) if criterion == "activation" else -(x <= 0).float().mean((0, 2, 3))
    scores = neuron_scores(criterion, unit, net.dense, seen, 0)
    gap = 0.2 * (oracle.max() - oracle.min())
    pairs = [(i, j) for i in range(12) for j in range(12) if oracle[i] > oracle[j] + gap]
    assert pairs and all(scores[i] > scores[j] for i, j in pairs)
