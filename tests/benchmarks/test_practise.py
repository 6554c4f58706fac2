"""PRACTISE on a small network: what goes, what is trained, and what it gains."""

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
import torch
from fake_runtime import FakeClock
from networks import Deep, images, make

import ldrf
from ldrf.calibration.network import read_network
from ldrf.errors import OutOfReach
from ldrf.registry import RUNTIMES

IMAGES = images(48)


@cache
def practise() -> ModuleType:
    """The module of the benchmark, which is no part of the package."""
    path = Path(__file__).parents[2] / "benchmarks" / "practise.py"
    spec = importlib.util.spec_from_file_location("practise", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["practise"] = module
    spec.loader.exec_module(module)
    return module


@cache
def deep():
    return read_network(make(Deep), [IMAGES], (), ldrf.PruneConfig(depth=True))


def test_a_block_that_goes_is_its_shortcut():
    net = deep()
    branch = next(b for b in net.branches if b.name == "one.conv2")
    slim = practise().without_blocks(net.model, (branch,))
    x = torch.relu(images(3, 2, (16, 6, 6)))
    assert torch.equal(slim.one(x), x)


def test_adaptors_begin_as_the_identity_around_the_gap_and_only_lower_the_distance():
    net, module = deep(), practise()
    branch = next(b for b in net.branches if b.name == "two.conv2")
    before, behind = module.layers_around(net.trace, branch)
    assert {layer.name for layer in before} == {"one.conv2", "stem"}
    assert {layer.name for layer in behind} == {"enter", "head"}
    slim = module.without_blocks(net.model, (branch,))
    settings = module.Settings(rate=1e-3, adaptor_steps=15)
    goal = module.Goal.of(net, IMAGES, settings)
    plain = module.feature_distance(slim, goal, settings)
    with module.adaptors(slim, before, behind):
        assert module.feature_distance(slim, goal, settings) == pytest.approx(plain, rel=1e-4)
    assert module.recoverability(net, branch, goal, settings) < plain


def test_blocks_go_by_recoverability_per_time_until_the_latency_is_reached_and_the_rest_is_trained():
    module, settings = practise(), None
    settings = module.Settings(rate=1e-3, adaptor_steps=5, epochs=10)
    with RUNTIMES.registered("fake", FakeClock(step=8).runtime()):
        where = ldrf.Deployment("fake")
        done = module.practise(make(Deep), IMAGES, 1.3, where, settings)
        with pytest.raises(OutOfReach, match="without any of its blocks"):
            module.practise(make(Deep), IMAGES, 50.0, where, module.Settings(adaptor_steps=1, epochs=1))
    scores = list(done.scores.values())
    assert scores == sorted(scores) and set(done.scores) == {"one.conv2", "two.conv2", "leave"}
    assert done.dropped == tuple(done.scores)[: len(done.dropped)] and done.ratio >= 1.3
    gone = [b for b in deep().branches if b.name in done.dropped]
    untrained = module.without_blocks(deep().model, gone)
    goal = module.Goal.of(deep(), IMAGES, settings)
    assert module.feature_distance(done.model, goal, settings) < module.feature_distance(untrained, goal, settings)
    assert type(done.model) is Deep and done.model(images(2)).shape == (2, 5)


def test_features_come_before_the_pool():
    from networks import Residual

    net = read_network(make(Residual), [IMAGES], (), ldrf.PruneConfig(depth=True))
    assert practise().feature_module(net.trace) == "block2"
    assert practise().feature_module(deep().trace) is None
