"""A lean run gives what a whole run gives and holds no value longer than it is needed."""

import math

import pytest
import torch
from networks import CASES, Case, Chain, Residual, images
from torch import Tensor

from ldrf.errors import LdrfError
from ldrf.inputs import read_inputs
from ldrf.tracing.interpreter import run
from ldrf.tracing.lean_run import LARGEST, check_finite, input_values, needed_for, run_lean
from ldrf.tracing.operations import read_by


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_lean_run_ends_with_the_same_outputs_and_little_else(network, case: Case):
    net = network(case.kind)
    inputs = read_inputs(net.model, case.batch(2))
    whole = run(net.trace, net.dense, net.trace.nodes, input_values(net.trace, inputs))
    lean = run_lean(net.trace, net.dense, 0, len(net.trace.nodes), input_values(net.trace, inputs))
    assert all(torch.equal(lean[name], whole[name]) for name in net.trace.outputs)
    read = {name for node in net.trace.nodes for name in read_by(node)}
    assert not (lean.keys() & read) - set(net.trace.outputs)


def test_wanted_values_are_kept(network):
    net = network(Chain)
    wanted = [layer.result for layer in net.trace.layers]
    values = input_values(net.trace, read_inputs(net.model, images(2)))
    lean = run_lean(net.trace, net.dense, 0, len(net.trace.nodes), values, wanted)
    assert set(wanted) <= lean.keys()


def test_nothing_is_read_after_its_last_use(network):
    trace = network(Residual).trace
    for position, names in trace.last_uses.items():
        later = {name for node in trace.nodes[position + 1 :] for name in read_by(node)}
        assert not later & set(names)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_needed_calls_give_the_outputs_from_what_is_known(network, case: Case):
    net = network(case.kind)
    inputs = read_inputs(net.model, case.batch(2))
    whole = run(net.trace, net.dense, net.trace.nodes, input_values(net.trace, inputs))
    middle = net.trace.layers[len(net.trace.layers) // 2].result
    known = {**input_values(net.trace, inputs), middle: whole[middle]}
    needed = needed_for(net.trace.nodes, net.trace.outputs, known)
    values = run(net.trace, net.dense, needed, known)
    assert middle not in {node.name for node in needed}
    for name in net.trace.outputs:
        assert name in values and (not isinstance(values[name], Tensor) or torch.equal(values[name], whole[name]))


def test_what_leads_to_known_values_only_is_not_needed(network):
    trace = network(Chain).trace
    needed = needed_for(trace.nodes, trace.outputs, {trace.layers[1].result, *trace.inputs})
    assert trace.layers[0].node not in {node.name for node in needed}


@pytest.mark.parametrize(("value", "told"), [(math.nan, "NaN or infinite"), (2 * LARGEST, "must stay below")])
def test_activations_out_of_bounds_are_named_by_their_layer(network, value: float, told: str):
    trace = network(Chain).trace
    node = trace.node(trace.layers[1].node)
    good: dict[str, Tensor] = {node.name: torch.ones(2)}
    check_finite(trace, node, good)
    with pytest.raises(LdrfError, match=f"layer 'conv2' .*{told}"):
        check_finite(trace, node, {node.name: torch.tensor([1.0, value])})
