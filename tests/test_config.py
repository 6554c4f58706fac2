"""Settings that make no sense are refused where they are made."""

from typing import Any

import pytest
from torch import nn

import ldrf
from ldrf import Deployment, LdrfError, PruneConfig
from ldrf.config import milliseconds


def made(**settings: Any) -> PruneConfig:
    return PruneConfig(**settings)


@pytest.mark.parametrize("name", ["selection", "allocation", "solver"])
def test_an_unknown_choice_names_the_known_ones(name):
    default = getattr(PruneConfig(), name) or "error"
    with pytest.raises(LdrfError, match=f"The '{name}' must be one of .*{default}.* Got 'best' instead"):
        made(**{name: "best"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steps", -1),
        ("rate", 0.0),
        ("damping", -1e-3),
        ("energy", 0.0),
        ("energy", 1.5),
        ("held_out", 0.9),
        ("chunk", 0),
    ],
)
def test_a_number_out_of_bounds_is_refused(name, value):
    with pytest.raises(LdrfError, match=f"The '{name}' must lie from"):
        made(**{name: value})


def test_not_a_number_is_refused():
    with pytest.raises(LdrfError, match="The 'energy' must lie from"):
        PruneConfig(energy=float("nan"))


@pytest.mark.parametrize(
    ("given", "count"),
    [("2GiB", 2**31), ("500 MB", 500_000_000), ("1.5kib", 1536), ("12", 12), ("3k", 3000), (7, 7), ("1TiB", 2**40)],
)
def test_memory_is_a_number_of_bytes(given, count):
    assert made(memory=given).memory == count == made(memory=made(memory=given).memory).memory


@pytest.mark.parametrize("given", ["lots", "", "GiB", "2 GiBs", "-1", "nan", "2**70", "99999999TiB", -5, None])
def test_memory_that_is_none_is_refused(given):
    with pytest.raises(LdrfError, match="The 'memory' must"):
        made(memory=given)


@pytest.mark.parametrize("given", [{"batch": 0}, {"threads": -1}, {"batch": 1.5}, {"threads": True}])
def test_a_deployment_counts_in_whole_numbers(given):
    with pytest.raises(LdrfError, match="must be a whole number from 1 up"):
        Deployment(**given)


def test_a_runtime_is_one_of_those_there_are():
    with pytest.raises(
        LdrfError, match="The 'runtime' must be one of inductor, onnxruntime, openvino, torch. Got 'tvm'"
    ):
        Deployment("tvm")


@pytest.mark.parametrize(("text", "value"), [("4 ms", 4.0), ("0.5s", 500.0), (" 250 us", 0.25)])
def test_times_have_units(text, value):
    assert milliseconds(text) == value


def test_a_setting_given_to_prune_is_pointed_to_its_place():
    with pytest.raises(LdrfError, match=r"no argument 'steps': a setting goes into config=ldrf.PruneConfig\(steps=2"):
        ldrf.prune(nn.Linear(2, 2), [], speedup=2, steps=2)
    with pytest.raises(LdrfError, match=r"has no argument 'colour'\."):
        ldrf.prune(nn.Linear(2, 2), [], speedup=2, colour="red")
