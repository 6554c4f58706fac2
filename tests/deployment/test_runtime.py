"""A runtime is found by its name, if it is there."""

import pytest
from fake_runtime import FakeClock

from ldrf.deployment.runtime import Prepared, Runtime, find_runtime, installed_runtimes
from ldrf.errors import LdrfError
from ldrf.registry import RUNTIMES


def test_one_that_is_not_installed_says_how_to_get_it():
    clock = FakeClock()
    absent = Runtime(lambda: None, "pip install 'ldrf[absent]'", clock.prepare, clock.time_pieces)
    with RUNTIMES.registered("absent", absent):
        with pytest.raises(LdrfError, match=r"'absent' is not installed: pip install 'ldrf\[absent\]'\."):
            find_runtime("absent")
        assert "absent" not in installed_runtimes()
    with pytest.raises(LdrfError, match="The 'runtime' must be one of inductor, onnxruntime, openvino, torch"):
        find_runtime("tensorrt")


def test_every_built_in_runtime_says_what_it_needs():
    assert all(RUNTIMES.find(name).needs for name in RUNTIMES.built_in) and "torch" in installed_runtimes()


def test_without_a_quick_way_a_network_is_prepared_anew():
    assert Prepared(lambda: None).cut(None, {}) is None  # pyright: ignore[reportArgumentType]
