"""Shared by all tests: one thread a worker, and small networks that are traced once for all tests."""

import gc
import logging
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import settings
from torch import nn

settings.register_profile("ldrf", deadline=None, max_examples=20, derandomize=True)
settings.load_profile("ldrf")

Kind = type[nn.Module]
ABOUT_EXPORT = {"test_layer_reading", "test_trace", "test_verification", "test_export"}  # files


def pytest_configure() -> None:
    """The pretend device is made known before anything is differentiated; it shows only to tests that want it."""
    import pretend_device

    if pretend_device.can_register():
        pretend_device.register()


# Graphs are many small objects that live on: to look for rubbish among them again and again takes a tenth of the time.
gc.set_threshold(100_000, 20, 20)


# pytest listens to every logger; torch writes a trace of each export as soon as anybody listens to this one.
logging.getLogger("torch.__trace").addHandler = lambda hdlr: None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="the first case of every test that is not slow")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With ``--quick``, leave out what takes long; put slow tests first, so that no worker is left alone with one."""
    if config.getoption("--quick"):
        first = {item.nodeid.partition("[")[0]: item for item in reversed(items) if not _is_slow(item)}
        chosen = set(first.values())
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = [item for item in items if item in chosen]
    items[:] = _in_two_halves(items)


def _in_two_halves(items: list[pytest.Item]) -> list[pytest.Item]:
    """xdist gives the first half to the first of two workers, and the end of the longer one to whoever is idle.

    Each half begins with its slow tests, so that no worker is left alone with one. Then come the tests of every second
    network of networks.py. Slow or not, tests of one network are in one half, so that each is traced by one worker.
    """
    files = list(dict.fromkeys(item.path for item in items if _is_slow(item)))

    def half_of(slow: pytest.Item) -> int:
        return (files.index(slow.path) if (kind := _kind(slow)) is None else kind) % 2

    slow = [[i for i in items if _is_slow(i) and half_of(i) == half] for half in (0, 1)]
    others = [item for item in items if not _is_slow(item)]
    known = [[i for i in others if (kind := _kind(i)) is not None and kind % 2 == half] for half in (0, 1)]
    rest = [item for item in others if _kind(item) is None]
    start = [slow[half] + known[half] for half in (0, 1)]
    more = max(0, len(items) // 2 - len(start[0]))
    return [*start[0], *rest[:more], *start[1], *rest[more:]]


def _kind(item: pytest.Item) -> int | None:
    """The number of the network in networks.py that a test is about, if it is about one."""
    from networks import CASES, Case

    kinds = [case.kind for case in CASES]
    for value in (
        item.callspec.params.values() if isinstance(item, pytest.Function) and hasattr(item, "callspec") else ()
    ):
        kind = value.kind if isinstance(value, Case) else value
        if isinstance(kind, type) and kind in kinds:
            return kinds.index(kind)
    return None


def _is_slow(item: pytest.Item) -> bool:
    return item.get_closest_marker("slow") is not None


def pytest_runtest_setup() -> None:
    # So that no test depends on which ones ran before it; torch.manual_seed notes the whole stack, which takes longer.
    torch.default_generator.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def exported_once() -> Iterator[None]:
    """A network is exported once, and so is its slim one: that takes most of the time of a small ``prune``."""
    from exported_once import CheckedOnce, ExportedOnce, operators_looked_up_once

    from ldrf.tracing.export import export_program

    with operators_looked_up_once(), _exporting_by(ExportedOnce(export_program), CheckedOnce(export_program)):
        yield


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Times of layers that tests measure do not end in the user's own cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LDRF_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session", autouse=True)
def timed_briefly() -> Iterator[None]:
    """Commands do not time every network for seconds, which is what takes longest in a test."""
    from ldrf.measuring.timing import latency_ratio

    with pytest.MonkeyPatch.context() as patch:
        for module in ("ldrf.cli.prune", "ldrf.reproduce.measure"):
            patch.setattr(f"{module}.latency_ratio", lambda *networks, **_: latency_ratio(*networks[:3], seconds=0.01))
        yield


@pytest.fixture(autouse=True)
def exported_anew(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests about the export itself have a real one every time."""
    from ldrf.tracing.export import export_program

    if {request.path.stem, request.path.parent.name} & ABOUT_EXPORT:
        with _exporting_by(export_program, export_program):
            yield
    else:
        yield


@contextmanager
def _exporting_by(dense: Callable[..., Any], slim: Callable[..., Any]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ldrf.tracing.trace.export_program", dense)
        patch.setattr("ldrf.recomposition.verification.export_program", slim)
        yield


@cache
def _network(kind: Kind) -> Any:
    from networks import CASES, make

    from ldrf.calibration.network import read_network
    from ldrf.config import PruneConfig

    case = next(c for c in CASES if c.kind is kind)
    return read_network(make(kind), [case.batch(48)], (), PruneConfig())


def _prune(kind: Kind, **target: Any) -> Any:
    import ldrf

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ldrf.run.read_network", lambda *_: _network(kind))
        return ldrf.prune(_network(kind).model, [], **target)


@cache
def _pruned(kind: Kind) -> Any:
    import ldrf

    config = ldrf.PruneConfig(solver="closed-form", energy=0.2)
    return _prune(kind, widths={u.name: max(1, u.width // 2) for u in _network(kind).units}, config=config)


@pytest.fixture(scope="session")
def network() -> Callable[[Kind], Any]:
    """``network(Chain)``: that network of networks.py, traced once for all tests; nobody may change it."""
    return _network


@pytest.fixture(scope="session")
def prune_known() -> Callable[..., Any]:
    """``prune_known(Chain, widths=...)``: ldrf.prune of that network on 48 images without tracing it again."""
    return _prune


@pytest.fixture(scope="session")
def pruned() -> Callable[[Kind], Any]:
    """``pruned(Chain)``: the result of cutting every unit of that network to half its width, made once."""
    return _pruned
