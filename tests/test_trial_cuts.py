"""Finding the units that can be cut takes few trials, however deep the network is."""

from types import SimpleNamespace
from typing import Any

from ldrf.trial_cuts import largest


def found(bad: set[str], names: list[str]) -> tuple[list[str], int]:
    """Names of the units that are found to work, and the number of trials, where each of the ``bad`` spoils a trial."""
    tried = []

    def works(units: Any) -> bool:
        tried.append(units)
        return not any(unit.name in bad for unit in units)

    units: Any = tuple(SimpleNamespace(name=name) for name in names)
    return [unit.name for unit in largest(units, works)], len(tried)


NAMES = [f"blocks.{i}.{part}" for i in range(40) for part in ("qkv", "mlp")]


def test_a_kind_that_fails_everywhere_is_left_out_at_once():
    good, trials = found({name for name in NAMES if "qkv" in name}, NAMES)
    assert good == [name for name in NAMES if "mlp" in name]
    assert trials <= 6


def test_single_units_that_fail_are_found_among_their_kind():
    bad = {"blocks.7.qkv", "blocks.8.qkv", "blocks.0.mlp"}
    good, _ = found(bad, NAMES)
    assert sorted(good) == sorted(set(NAMES) - bad)


def test_units_that_fail_only_together_are_added_one_by_one():
    tried: list[int] = []

    def works(units: Any) -> bool:
        tried.append(len(units))
        return not {"a", "b"} <= {unit.name for unit in units}

    units: Any = tuple(SimpleNamespace(name=name) for name in ("a", "b", "c"))
    assert [unit.name for unit in largest(units, works)] == ["a", "c"]


def test_none_or_all():
    assert found(set(), NAMES) == (NAMES, 1)
    assert found(set(NAMES), NAMES)[0] == []
    assert found({"x"}, ["x"])[0] == []
