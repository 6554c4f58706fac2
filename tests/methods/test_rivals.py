"""The rival methods: at full width nothing changes, what they keep is what their papers say, repairs repair."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false

import json

import pytest
import torch
from networks import (
    CASES,
    Case,
    Chain,
    Residual,
)
from rival_checks import RIVALS, UNLABELLED, assert_identity_at_full_width, halves


@pytest.mark.parametrize("name", RIVALS)
@pytest.mark.parametrize("kind", [Chain, Residual])
def test_a_unit_kept_whole_has_no_error(network, name, kind):
    assert_identity_at_full_width(network(kind), name)


@pytest.mark.parametrize("name", ["he2017", "thinet", "li2017"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_any_network_has_no_error_at_full_width_and_is_cut_to_half(network, prune_known, case: Case, name):
    net = network(case.kind)
    assert_identity_at_full_width(net, name)
    result = prune_known(case.kind, widths=halves(net), method=name)
    assert result.widths == halves(net)
    assert all(torch.isfinite(p).all() for p in result.model.parameters())


@pytest.mark.parametrize("name", UNLABELLED)
def test_the_asked_widths_are_obeyed_and_recorded(prune_known, name):
    result = prune_known(Chain, widths={"conv1": 5}, method=name)
    assert result.widths == {"conv1": 5, "conv2": 16} and result.model.conv1.out_channels == 5
    assert [h.name for h in result.history] == ["conv1"]  # what is not cut is left alone
    assert result.method == name and f"\nmethod: {name}\n" in str(result)
    told = json.loads(json.dumps(result.as_dict()))
    assert told["method"] == name and "solver" not in told["config"] and told["config"]["seed"] == 0
