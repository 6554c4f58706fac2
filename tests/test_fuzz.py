"""Random networks of all known pieces: nothing breaks, full width changes nothing, a cut is a cut and nothing else.

``LDRF_FUZZ=2000 pytest tests/test_fuzz.py`` tries that many, others every time unless ``--hypothesis-seed`` is given; a
failure prints the plan of the smallest network found.
"""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportOperatorIssue=false
# pyright: reportOptionalMemberAccess=false

import copy
import os
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import replace
from unittest import mock

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from networks import unread
from random_networks import Drawn, Piece, built, fed, plans
from torch import Tensor
from torch.utils._pytree import tree_leaves

import ldrf
from ldrf.calibration.network import Network, read_network
from ldrf.inputs import Inputs
from ldrf.planning.objectives.params import parameter_model
from ldrf.planning.objectives.speedup import mac_model
from ldrf.recomposition.best import choose
from ldrf.recomposition.recompose import output_statistics, recompose
from ldrf.tracing.counting import count_macs, count_parameters
from ldrf.tracing.interpreter import run
from ldrf.tracing.lean_run import input_values
from ldrf.units.indices import covering, cut_weights, least_width
from ldrf.units.module_surgery import cut_plainly

Choose = Callable[[str, int, int], int]  # of a unit's name, its least and its full width
FEW = 5  # beside those that failed once, of which the same is asked
COUNT = int(os.environ.get("LDRF_FUZZ", FEW))

pytestmark = [
    pytest.mark.filterwarnings("ignore:Using padding=.same. with even kernel:UserWarning"),
    pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning"),
]


def outputs(model: torch.nn.Module, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    with torch.no_grad():
        return [t for t in tree_leaves(model(*inputs)) if isinstance(t, Tensor)]


def close(found: list[Tensor], wanted: list[Tensor], tolerance: float = 1e-4) -> None:
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        assert a.shape == b.shape
        assert float((a - b).abs().max()) <= tolerance * (float(b.abs().max()) + 1e-3)


def sees_all_channels(plan: Drawn) -> bool:
    """Whether a norm looks at several channels at once, so that cutting one changes the others."""
    return plan.tail == "tokens" or any(p.norm in ("group", "rms") or p.kind == "last" for p in plan.pieces)


@pytest.mark.slow
@settings(
    max_examples=COUNT,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=COUNT <= FEW,
    phases=[Phase.generate] if COUNT <= FEW else list(Phase),  # to shrink a network takes minutes
)
@given(plan=plans, coupled=st.booleans(), data=st.data())
def test_random_networks(plan: Drawn, coupled: bool, data: st.DataObject):
    check(plan, coupled, lambda name, least, width: data.draw(st.integers(least, width), label=name))


def check(plan: Drawn, coupled: bool, *choices: Choose) -> None:
    """A network of this plan, read once and cut to each of the choices of widths."""
    model, x = built(plan), fed(plan, 24)
    config = ldrf.PruneConfig(solver="closed-form", energy=0.2, chunk=8, coupled=coupled)
    net = read_network(model, [x], (), config)
    if not net.units:  # such as a stem that a shared layer reads
        assert net.skipped and all(s.reason for s in net.skipped)
        with pytest.raises(ldrf.LdrfError, match="no prunable layer"):
            ldrf.prune(model, [x], speedup=1.1, config=config)
        return
    full_width_is_the_dense_network(net, x)
    for width in choices:
        a_cut_is_a_cut(plan, net, x, {u.name: width(u.name, least_width(u), u.width) for u in net.units}, config)


def a_cut_is_a_cut(
    plan: Drawn, net: Network, x: tuple[Tensor, ...], widths: dict[str, int], config: ldrf.PruneConfig
) -> None:
    chance = torch.Generator().manual_seed(plan.seed)
    kept = {u.name: covering(u, torch.randperm(u.width, generator=chance)[: widths[u.name]]) for u in net.units}
    slim = copy.deepcopy(net.model)
    cut_plainly(slim, net.units, kept)
    inputs = input_values(net.trace, net.example)
    with torch.no_grad():
        values = run(net.trace, cut_weights(net.trace, net.units, net.dense, kept), net.trace.nodes, inputs)
    close(outputs(slim, net.example.args), [values[name] for name in net.trace.outputs])
    if not sees_all_channels(plan):
        close(outputs(slim, x), outputs(unread(net, kept), x))
    costs_are_counts(net, widths, slim)
    pruned_is_never_worse_than_cut(net, x, widths, config)


def full_width_is_the_dense_network(net: Network, x: tuple[Tensor, ...]) -> None:
    whole = {u.name: torch.arange(u.width) for u in net.units}
    nodes = {la.node for la in net.trace.layers if net.trace.called.get(la.weight, 1) == 1}
    statistics = output_statistics(net.trace, net.dense, nodes, net.calibration)
    close(outputs(recompose(net, net.dense, nodes, whole, statistics), x), outputs(net.model, x))


def costs_are_counts(net: Network, widths: dict[str, int], slim: torch.nn.Module) -> None:
    even = all(
        len({int((ids == n).sum()) for n in range(u.width)}) == 1
        for u in net.units
        for ids in (u.neuron_of_output, *(s.ids for s in u.slices), *(c.channels for c in u.consumers))
    )
    macs = mac_model(net.trace, net.units, net.macs)
    parameters = parameter_model(net.trace, net.units, count_parameters(net.model))
    if even:
        assert macs.at(widths) == pytest.approx(count_macs(slim, net.example))
        assert parameters.at(widths) == pytest.approx(count_parameters(slim))


def pruned_is_never_worse_than_cut(
    net: Network, x: tuple[Tensor, ...], widths: dict[str, int], config: ldrf.PruneConfig
) -> None:
    model, config = net.model, replace(config, solver="joint", steps=2, joint_steps=2)
    choosing = mock.patch("ldrf.pipeline.choose", wraps=choose)
    tracing = mock.patch("ldrf.run.read_network", return_value=net)  # most of the time goes into that
    with warnings.catch_warnings(), choosing as chosen, tracing:
        warnings.filterwarnings("ignore", ".*plain cutting does better", ldrf.LdrfWarning)  # it is then returned
        result = ldrf.prune(model, [x], widths=widths, config=config)
    assert result.widths == widths
    judged = result.held_out
    assert judged is None or judged.reconstructed <= judged.cut or judged.returned == "cut"
    network, _, kept, *_ = chosen.call_args.args
    cut = copy.deepcopy(model)
    cut_plainly(cut, network.units, kept)
    # Both are distances, so that rounding moves them by as much as it moves the outputs.
    assert held_out_distance(result.model, net) <= held_out_distance(cut, net) * (1 + 1e-4) + 1e-5
    assert all(h.error <= h.cut_error * (1 + 1e-6) + 1e-12 for h in result.history)
    assert result.macs == (count_macs(model, Inputs(x, {})), count_macs(result.model, Inputs(x, {})))
    with tempfile.TemporaryDirectory() as folder:
        ldrf.save(result, f"{folder}/slim")
        loaded = ldrf.load(f"{folder}/slim", copy.deepcopy(model))
    close(outputs(loaded, x), outputs(result.model, x), 1e-6)


def held_out_distance(slim: torch.nn.Module, net: Network) -> float:
    """How far the outputs of a model are from the dense ones on the images that only judge, relative to these."""
    chunks = [net.calibration.chunks[i].args for i in sorted(net.calibration.held_out)]
    inputs = tuple(torch.cat(parts) for parts in zip(*chunks, strict=True))
    pairs = zip(outputs(slim, inputs), outputs(net.model, inputs), strict=True)
    return sum(float((a - b).double().square().sum() / b.double().square().sum()) for a, b in pairs) ** 0.5


REGRESSIONS: list[tuple[Drawn, bool]] = [
    (Drawn((Piece(kind, 8, 3, "batch", "relu", True),), "mean", 2, 1), False)
    for kind in ("dense", "shuffle", "halves", "grouped", "pixels")
]
REGRESSIONS.append((Drawn((Piece("halves", 4, 1, "none", "relu", False),) * 2, "mean", 1, 0), False))
# Two heads of width 2, cut to one, are read as two of width 1: attention that sees all positions alike hides it.
FLAT = (
    Piece("shuffle", 4, 1, "none", "relu", False),
    Piece("depthwise", 6, 1, "group", "leaky", True),
    Piece("glu", 4, 1, "none", "silu", False),
    Piece("dense", 6, 3, "batch", "leaky", False),
    Piece("glu", 4, 3, "rms", "none", False),
    Piece("strided", 4, 1, "group", "gelu", False),
)
REGRESSIONS.append((Drawn(FLAT, "tokens", 2, 1343), True))
# A stream whose neurons come from two layers side by side: one of them lost all of its outputs.
JOINED = (Piece("dense", 8, 1, "none", "relu", True), Piece("depthwise", 4, 1, "none", "relu", True))
REGRESSIONS.append((Drawn(JOINED, "tokens", 1, 522), True))
# A map of one position: a group left with one channel of it has one value, which torch refuses to normalise.
LAST = (*[Piece("strided", 4, 1, "none", "relu", True)] * 3, Piece("strided", 4, 1, "group", "relu", False))
REGRESSIONS.append((Drawn(LAST, "mean", 1, 0), False))
# Two layers with nothing between them: what the first gave aside, at its full width, was read by the second.
BARE = (Piece("pool", 4, 1, "none", "relu", False), Piece("scale", 4, 1, "none", "relu", False))
BARE += (Piece("transposed", 4, 1, "none", "relu", False), Piece("conv", 4, 1, "none", "relu", False))
REGRESSIONS.append((Drawn(BARE, "mean", 1, 0), False))
# A group of channels goes, and the rest is shuffled otherwise than before: dead channels hid it from the trial cut.
REST = [Piece(kind, width, 1, "none", "relu", False) for kind, width in (("grouped", 8), ("shuffle", 4), ("conv", 4))]
REGRESSIONS.append((Drawn((Piece("transposed", 4, 1, "none", "relu", False), *REST), "mean", 1, 19380), False))
# Uneven "same" padding fixed the traced batch, so that attention behind it seemed to cost next to nothing.
FIXED = (Piece("same", 4, 1, "none", "relu", True), Piece("product", 4, 1, "none", "relu", False))
REGRESSIONS.append((Drawn(FIXED, "tokens", 1, 0), False))
# A transposed convolution in groups behind a join: all of its work was thought to be that of the first part.
UP = [("conv", 4), ("dense", 6), ("upsample", 4), ("conv", 4)]
REGRESSIONS.append((Drawn(tuple(Piece(kind, n, 1, "none", "relu", False) for kind, n in UP), "mean", 1, 0), False))
# A head tied to an embedding: what it reads of the stream was not counted.
REGRESSIONS.append((Drawn((Piece("residual", 4, 1, "none", "relu", True),), "mean", 1, 0, "tied"), True))
# An in-place ReLU twice on one tensor, which cannot be trained; a graph that fixes the batch; widths tied by the code.
REGRESSIONS += [
    (Drawn((Piece(kind, 8, 3, "batch", "relu", True),), tail, 1, 7), coupled)
    for kind, tail, coupled in (("twice", "mean", False), ("counted", "flatten", False), ("conv", "tokens", True))
]


@pytest.mark.slow
@pytest.mark.parametrize(("plan", "coupled"), REGRESSIONS, ids=lambda v: str(v)[:40])
def test_networks_that_failed_once(plan: Drawn, coupled: bool):
    check(plan, coupled, lambda _, least, width: max(least, width // 2), lambda _, least, width: least)
