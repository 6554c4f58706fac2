"""A method is added from outside the package: prune finds it by its name."""

import pytest
import torch
from networks import Mlp

import ldrf
from ldrf.methods.shared.cutting import cutting_method
from ldrf.registry import METHODS


def last_first(network, findings, config) -> dict[str, torch.Tensor]:
    """Scores that rise with a neuron's number."""
    return {unit.name: torch.arange(unit.width, dtype=torch.float32) for unit in network.units}


def test_a_method_from_outside_cuts_as_it_says_and_is_gone_afterwards(network, prune_known):
    model = network(Mlp).model
    with METHODS.registered("last", cutting_method("last", "the last neurons stay", "#123456", last_first)):
        result = prune_known(Mlp, widths={"first": 5}, method="last")
    assert result.method == "last" and result.widths == {"first": 5, "second": 12}
    assert torch.equal(result.model.first.weight, model.first.weight[-5:])
    assert torch.equal(result.model.second.weight, model.second.weight[:, -5:])
    with pytest.raises(ldrf.LdrfError, match="Got 'last' instead"):
        prune_known(Mlp, widths={"first": 5}, method="last")
