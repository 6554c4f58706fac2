"""An objective is added from outside the package, and a plan is priced in it."""

import pytest
import torch
from networks import Chain, images, make

import ldrf
from ldrf.planning.cost_model import Term, cost_model
from ldrf.planning.objective import Objective
from ldrf.registry import OBJECTIVES


def activations(network) -> object:
    """Numbers in the maps that each unit's producer gives, per example."""
    terms = [Term(float(unit.producer.positions), (unit.name,)) for unit in network.units]
    return cost_model(terms, network.units, sum(t.factor * u.width for t, u in zip(terms, network.units, strict=True)))


def maps(model: torch.nn.Module) -> int:
    """The same counted on the model itself: conv1 gives 8 x 8 maps, conv2 4 x 4 ones."""
    return 64 * model.conv1.out_channels + 16 * model.conv2.out_channels  # pyright: ignore


def test_a_plan_is_priced_in_an_objective_from_outside():
    model = make(Chain)
    with OBJECTIVES.registered("activations", Objective("activations ratio", activations)):  # pyright: ignore
        config = ldrf.PruneConfig(solver="closed-form", energy=0.05, multiple=1)
        result = ldrf.prune(model, [images(48)], objective=("activations", 1.8), config=config)
        with pytest.raises(ldrf.LdrfError, match="A activations ratio of 1000 is out of reach"):
            ldrf.prune(model, [images(48)], objective=("activations", 1000), config=config)
    assert 1.8 <= maps(model) / maps(result.model) < 2.1
    assert result.target == {"activations": 1.8}


def test_speedup_and_params_are_objectives_of_their_name(prune_known):
    config = ldrf.PruneConfig(solver="none", energy=0.05)
    for name in ("speedup", "params"):
        short, long = (
            prune_known(Chain, **asked, config=config) for asked in ({name: 1.5}, {"objective": (name, 1.5)})
        )
        assert short.widths == long.widths and short.target == long.target == {name: 1.5}
