"""Ties, frozen ids and roots of channels, and what a walk leaves in the trace it returns."""

# pyright: reportArgumentType=false

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from networks import flow_of

from ldrf.channels.flow import FIXED, Flow, extents, module_of, unknown, where

PAIRS = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=12)


@given(pairs=PAIRS)
def test_ties_make_the_smallest_groups_that_hold_every_pair(pairs):
    flow = Flow(None)
    ids = flow.fresh(8)
    for one, other in pairs:
        flow.tie(ids[[one]], ids[[other]], "")
    groups = [{i} for i in range(8)]
    for one, other in pairs:  # by hand: merge the two sets
        both = next(g for g in groups if one in g) | next(g for g in groups if other in g)
        groups = [g for g in groups if not g & both] + [both]
    roots = flow.roots(ids)
    assert {frozenset(np.flatnonzero(roots == root).tolist()) for root in roots} == set(map(frozenset, groups))


def test_a_channel_tied_to_a_fixed_place_is_frozen_with_the_reason():
    flow = Flow(None)
    ids = flow.fresh(3)
    flow.tie(ids, np.array([FIXED, 2, FIXED]), "it meets a constant")
    ((frozen, reason),) = flow.frozen
    assert frozen.tolist() == [0, 2] and reason == "it meets a constant"
    assert flow.roots(np.array([FIXED, 1, 2]))[0] == FIXED and flow.root(1) == flow.root(2)


def test_fresh_ids_follow_each_other():
    flow = Flow(None)
    assert flow.fresh(2).tolist() == [0, 1] and flow.fresh(3).tolist() == [2, 3, 4]


def test_the_followed_trace_knows_where_channels_lie_in_calls_that_state_sizes():
    graph, flow = flow_of(lambda x: x.permute(0, 2, 3, 1).reshape(x.shape[0], 16, 6).relu())
    (name,) = flow.followed.channel_dims
    assert graph.node(name).name.startswith(("view", "reshape", "_unsafe_view"))
    assert flow.followed.channel_dims[name] == (3, 2)
    assert not graph.channel_dims and flow.followed.nodes is graph.nodes


def test_two_walks_of_one_graph_do_not_disturb_each_other():
    from ldrf.channels.walk import follow_channels

    graph, last = flow_of(lambda x: x.view(x.size(0), 2, 3, 4, 4))
    (view,) = last.channel_dims
    first = follow_channels(graph, {view: -2})
    assert last.followed.channel_dims[view] == (1, 2) and first.followed.channel_dims[view] == (1, 1)


def test_sizes_modules_and_reasons_of_a_call():
    graph, flow = flow_of(torch.relu)
    conv, relu = graph.nodes
    assert extents(relu)[1:] == (6, 4, 4) and extents(relu)[0] > 1000  # any number of examples
    assert module_of(conv) == "conv" and where(conv) == " in 'conv'"
    unknown(flow, relu, {"conv2d": flow.values[conv.name]})
    assert "pass through 'relu'" in flow.frozen[-1][1]
