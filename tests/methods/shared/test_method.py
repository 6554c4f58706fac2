"""What all methods share: their names, their way to widths, and labels for those that ask."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false

import pytest
import torch
from networks import (
    Chain,
    Mlp,
    images,
    make,
)

import ldrf
from ldrf.methods.shared.method import take_labels
from ldrf.registry import METHODS


@pytest.mark.parametrize(("name", "allocation"), [("ldrf", "error"), ("he2017", "uniform")])
def test_widths_for_a_speedup_are_found_as_the_method_does(prune_known, name, allocation):
    config = ldrf.PruneConfig(solver="closed-form", energy=0.1)
    result = prune_known(Chain, speedup=1.6, method=name, config=config)
    assert result.config.allocation == allocation and result.speedup >= 1.6
    asked = prune_known(Chain, speedup=1.6, method=name, config=ldrf.PruneConfig(allocation="paper", solver="none"))
    assert asked.config.allocation == "paper"


def test_an_unknown_method_is_told_before_the_work():
    with pytest.raises(
        ldrf.LdrfError, match="must be one of activation, he2017, .*ldrf, .*thinet. Got 'he2018' instead"
    ):
        ldrf.prune(make(Mlp), [], speedup=2, method="he2018")


def test_labels_are_left_alone_for_methods_that_do_not_ask():
    batches = iter([(images(4), torch.arange(4))])
    given, labels = take_labels(METHODS.find("he2017"), make(Mlp), batches)
    assert given is batches and labels is None
    given, labels = take_labels(METHODS.find("molchanov2017"), make(Mlp), batches)
    assert labels is not None and labels.tolist() == [0, 1, 2, 3] and len(list(given)) == 1
