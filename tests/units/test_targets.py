"""What the user asks for is checked, and ignored layers are protected on both sides."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false

import json

import numpy as np
import pytest
from networks import Bottleneck, Branches, Carriers, Chain, Gated, Inverted, Residual
from torch import nn

from ldrf.config import Deployment
from ldrf.errors import LdrfError
from ldrf.units.targets import Target, apply_ignore, exact_widths, ignored_modules, read_target


@pytest.mark.parametrize("given", [{}, {"speedup": 2.0, "params": 2.0}, {"widths": {}, "keep": {}}])
def test_exactly_one_target_is_given(given):
    with pytest.raises(LdrfError, match="Exactly one of speedup=, params=, widths=, keep=, objective= and latency="):
        read_target(**given)


@pytest.mark.parametrize("name", ["speedup", "params"])
@pytest.mark.parametrize("value", [1, 1.0, 0, -2.0, float("nan"), "3", True])
def test_ratios_are_numbers_above_one(name, value):
    with pytest.raises(LdrfError, match=f"The '{name}' must be a number above 1"):
        read_target(**{name: value})


@pytest.mark.parametrize("value", [1, 0.5, -2.0, float("nan"), True, "4", "0 ms", "4 minutes", "fast"])
def test_a_latency_is_a_ratio_above_one_or_a_time(value):
    with pytest.raises(LdrfError, match="The 'latency' must be a .*above 1 .*or a time such as '4 ms'"):
        read_target(latency=value)


def test_a_latency_comes_with_where_it_is_measured():
    where = Deployment("torch", batch=4, threads=2)
    asked = {"runtime": "torch", "batch": 4, "threads": 2}
    assert read_target(latency=2, deployment=where).as_dict() == {"latency": 2.0, **asked}
    assert read_target(latency="4 ms", deployment=where).as_dict() == {"latency": "4 ms", **asked}
    assert read_target(latency=2).deployment == Deployment()
    with pytest.raises(LdrfError, match="A 'deployment' goes with latency=. Got it with speedup= instead"):
        read_target(speedup=2.0, deployment=where)
    with pytest.raises(LdrfError, match="The 'deployment' must be an ldrf.Deployment. Got str instead"):
        read_target(latency=2.0, deployment="torch")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("objective", ["params", ("params",), (2.0, "params"), {"params": 2.0}])
def test_an_objective_is_a_name_and_a_ratio(objective):
    with pytest.raises(LdrfError, match="'objective' must be a name and a ratio, such as"):
        read_target(objective=objective)


def test_an_unknown_objective_is_told_with_those_there_are():
    with pytest.raises(LdrfError, match="'objective' must be one of params, speedup. Got 'joules' instead"):
        read_target(objective=("joules", 2.0))


def test_widths_and_shares_become_whole_numbers(network):
    net = network(Chain)
    assert exact_widths(Target(widths={"conv1": np.int64(5)}), net.units, ()) == {"conv1": 5, "conv2": 16}
    assert exact_widths(Target(keep={"conv1": 0.5, "conv2": 0.01}), net.units, ()) == {"conv1": 6, "conv2": 1}
    assert exact_widths(Target(widths={}), net.units, ()) == {"conv1": 12, "conv2": 16}


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"speedup": np.float32(3)}, {"speedup": 3.0}),
        ({"params": 2}, {"params": 2.0}),
        ({"objective": ("params", 2)}, {"params": 2.0}),
        ({"widths": {"conv1": np.int64(5)}}, {"widths": {"conv1": 5}}),
        ({"keep": {"conv1": np.float64(0.5)}}, {"keep": {"conv1": 0.5}}),
    ],
)
def test_a_target_can_be_written_down(asked, told):
    assert json.loads(json.dumps(read_target(**asked).as_dict())) == told


@pytest.mark.parametrize("width", [0, -1, 13, 5.0, "5", True, None])
def test_widths_are_whole_numbers_up_to_the_full_one(network, width):
    with pytest.raises(LdrfError, match="The width of 'conv1' must be a whole number from 1 to 12. Got"):
        exact_widths(Target(widths={"conv1": width}), network(Chain).units, ())


@pytest.mark.parametrize("share", [0, -0.5, 1.5, "half", True, float("nan")])
def test_shares_lie_above_zero_and_up_to_one(network, share):
    with pytest.raises(LdrfError, match="The share to keep of 'conv1' must be above 0 and at most 1. Got"):
        exact_widths(Target(keep={"conv1": share}), network(Chain).units, ())


@pytest.mark.parametrize("what", ["widths", "keep"])
def test_unknown_and_uncuttable_layers_are_named(network, what):
    net = network(Chain)
    with pytest.raises(LdrfError, match=f"Unknown layer 'conv11' in {what}=.*conv1"):
        exact_widths(Target(**{what: {"conv11": 1}}), net.units, net.skipped)
    with pytest.raises(LdrfError, match=f"Layer 'fc' in {what}= cannot be cut: it is an output of the model"):
        exact_widths(Target(**{what: {"fc": 1}}), net.units, net.skipped)


@pytest.mark.parametrize(
    ("ignore", "left"),
    [
        ((), {"stem", "conv1", "conv2"}),
        ("conv2", {"stem"}),  # its own outputs, and the unit that would narrow its inputs
        (["down"], {"conv1", "conv2"}),
        ("conv*", set()),
        ("bn2", {"stem"}),
        (lambda name, module: name == "conv3", {"stem", "conv1"}),
        (lambda name, module: isinstance(module, nn.Linear), {"stem", "conv1", "conv2"}),
    ],
)
def test_an_ignored_layer_keeps_its_inputs_and_outputs(network, ignore, left):
    net = network(Bottleneck)
    units, skipped = apply_ignore(ignored_modules(net.model, ignore), net.units)
    assert {u.name for u in units} == left
    assert {u.name for u in units} | {s.name for s in skipped} == {u.name for u in net.units}
    assert all("ignored" in s.reason for s in skipped)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "ignore", "left"),
    [
        (Inverted, "depth", set()),
        (Inverted, "bn2", set()),
        (Carriers, "prelu", {"conv2", "fc1"}),
        (Carriers, "bn2", {"conv1", "conv2"}),
        (Branches, "near", set()),
        (Residual, "block1", {"block2.conv1"}),
        (Residual, "block?", set()),
        (Residual, lambda n, m: n == "block2", {"block1.conv1"}),
    ],
)
def test_carriers_and_containers_are_protected_too(network, kind, ignore, left):
    net = network(kind)
    assert {u.name for u in apply_ignore(ignored_modules(net.model, ignore), net.units)[0]} == left


def test_a_name_means_the_module_with_all_it_contains():
    found = ignored_modules(Residual(), ["block1", "fc"])
    assert found == {"block1", "block1.conv1", "block1.bn1", "block1.conv2", "block1.bn2", "fc"}


@pytest.mark.parametrize("ignore", ["conv9", ["fc", "layer*"], ""])
def test_an_unknown_name_in_ignore_is_refused(ignore):
    with pytest.raises(LdrfError, match="Unknown layer '.*' in ignore="):
        ignored_modules(Chain(), ignore)


@pytest.mark.slow
def test_layers_that_are_cut_with_another_are_pointed_to_it_and_named_where_they_are_ignored(network):
    net = network(Gated)
    unit = next(u for u in net.units if u.partners)
    partner = unit.partners[0].name
    with pytest.raises(LdrfError, match=f"Layer '{partner}' in widths= is cut with '{unit.name}'"):
        exact_widths(Target(widths={partner: 2}), net.units, ())
    left, skipped = apply_ignore(frozenset({partner}), (unit,))
    reasons = {s.name: s.reason for s in skipped}
    assert not left and reasons[partner] == "it is ignored"
    assert reasons[unit.name] == f"'{partner}', which it would change, is ignored"
