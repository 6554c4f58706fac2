"""Widths come in blocks that runtimes have kernels for, and narrow units still have a choice."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from networks import Chain, images, settled
from torch import nn

import ldrf
from ldrf.units.width_choices import STEPS, nearest_choice, odd_widths, width_choices, width_step


@pytest.fixture(scope="module")
def unit(network):
    """A unit of any width: ``unit(rows)`` has these neurons behind its producer's outputs."""
    known = network(Chain).units[0]
    return lambda rows: replace(known, neuron_of_output=np.array(rows), width=max(rows) + 1)


@given(width=st.integers(1, 300), floor=st.integers(0, 300), multiple=st.sampled_from([1, 2, 4, 8, 12, 16, 32]))
def test_choices_are_multiples_from_the_floor_up_and_the_full_width(unit, width, floor, multiple):
    one = unit(range(width))
    step, choices = width_step(one, multiple), width_choices(one, min(floor, width), multiple)
    assert choices == tuple(sorted(set(choices))) and choices[-1] == width
    assert all(choice % step == 0 for choice in choices[:-1])
    assert choices[0] >= min(floor, width) and choices[0] >= 1
    assert step <= multiple and (step == 1 or width >= STEPS * step)
    assert multiple > 1 or choices == tuple(range(max(1, min(floor, width)), width + 1))


@pytest.mark.parametrize(("width", "step"), [(512, 8), (64, 8), (32, 8), (31, 4), (16, 4), (15, 1), (7, 1)])
def test_steps_of_narrow_units_are_halved(unit, width, step):
    assert width_step(unit(range(width)), 8) == step


@pytest.mark.parametrize(("width", "step"), [(512, 16), (64, 16), (63, 8), (32, 8), (31, 4), (16, 4), (15, 1)])
def test_only_wide_units_move_in_sixteens(unit, width, step):
    assert width_step(unit(range(width)), 16) == step


def test_whole_heads_and_groups_are_blocks_of_their_own(unit):
    heads = unit(np.repeat(np.arange(12), 64).tolist())
    assert width_step(heads, 8) == 1, "each head brings 64 outputs"
    groups = unit(np.repeat(np.arange(64), 2).tolist())
    assert width_step(groups, 8) == 4, "four groups of two outputs make eight"
    parts = unit(np.tile(np.arange(64), 3).tolist())
    assert width_step(parts, 8) == 8, "three parts of 64 outputs are each to come in eights"


def test_the_nearest_choice_is_the_larger_of_two():
    assert nearest_choice((8, 16, 24, 30), 12) == 16
    assert nearest_choice((8, 16, 24, 30), 29) == 30


def test_odd_widths_are_named_with_a_better_one(unit):
    one = unit(range(64))
    assert odd_widths((one,), {one.name: 41}, 8) == {one.name: 40}
    assert odd_widths((one,), {one.name: 40}, 8) == {}
    assert odd_widths((one,), {}, 8) == {}
    assert odd_widths((one,), {one.name: 41}, 1) == {}
    assert odd_widths((unit(range(31)),), {one.name: 13}, 8) == {}, "a narrow unit may have any width"


class Wide(nn.Module):
    """Two convolutions wide enough for blocks of eight."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 40, 3), nn.Conv2d(40, 36, 3)
        self.fc = nn.Linear(36, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(torch.relu(self.two(torch.relu(self.one(x)))).mean((2, 3)))


@pytest.fixture(scope="module")
def wide() -> nn.Module:
    return settled(Wide())


@pytest.mark.slow
@pytest.mark.parametrize("target", [{"speedup": 1.7}, {"params": 1.7}, {"keep": {"one": 0.4, "two": 0.51}}])
@pytest.mark.parametrize("method", ["ldrf", "li2017"])
def test_every_plan_has_widths_in_eights(wide, target, method):
    config = ldrf.PruneConfig(solver="closed-form", joint_steps=0)
    result = ldrf.prune(wide, [images(64)], method=method, config=config, **target)
    assert all(width % 8 == 0 or width == result.full_widths[name] for name, width in result.widths.items())
    assert any(width < result.full_widths[name] for name, width in result.widths.items())


@pytest.mark.slow
def test_widths_by_hand_are_left_alone_with_a_hint(wide):
    config = ldrf.PruneConfig(solver="none")
    with pytest.warns(ldrf.LdrfWarning, match=r"width 13 of 'one' \(and 1 more\).*16 is near"):
        result = ldrf.prune(wide, [images(64)], widths={"one": 13, "two": 21}, config=config)
    assert result.widths == {"one": 13, "two": 21}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".* calibration images give", ldrf.LdrfWarning)
        warnings.filterwarnings("ignore", ".*plain cutting does better", ldrf.LdrfWarning)
        ldrf.prune(wide, [images(64)], widths={"one": 16, "two": 36}, config=config)
        ldrf.prune(wide, [images(64)], widths={"one": 13}, config=replace(config, multiple=1))


def test_multiple_is_checked():
    with pytest.raises(ldrf.LdrfError, match="'multiple' must lie from 1 to 1024. Got 0 instead"):
        ldrf.PruneConfig(multiple=0)
