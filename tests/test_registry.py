"""Things are found by name, listed without importing them, and added from outside."""

import subprocess
import sys

import pytest

from ldrf.errors import LdrfError
from ldrf.registry import METHODS, OBJECTIVES, Registry


def test_names_are_those_of_the_files():
    assert OBJECTIVES.names == ("params", "speedup")
    assert {"ldrf", "he2017", "thinet"} <= set(METHODS.names)
    assert METHODS.find("he2017").name == "he2017"


@pytest.mark.parametrize("registry", [OBJECTIVES, METHODS], ids=lambda r: r.kind)
def test_every_built_in_name_is_found(registry: Registry):
    assert all(registry.find(name) for name in registry.built_in)


def test_names_are_listed_without_torch():
    code = "import sys; from ldrf.registry import METHODS; assert METHODS.names; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_an_unknown_name_is_told_with_all_there_are():
    with pytest.raises(LdrfError, match="The 'objective' must be one of params, speedup. Got 'time' instead."):
        OBJECTIVES.find("time")


def test_an_entry_is_there_only_within():
    things: Registry[int] = Registry("thing", "ldrf.planning.objectives")
    with things.registered("seven", 7):
        assert things.find("seven") == 7 and things.names == ("params", "speedup", "seven")
        with pytest.raises(LdrfError, match="There is a thing called 'seven' already"):
            things.register("seven", 8)
    assert "seven" not in things.names
    with pytest.raises(LdrfError, match="There is a thing called 'params' already"):
        things.register("params", 1)
