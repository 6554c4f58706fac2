"""One word sets what was not set by hand, and the usual one is what the settings were before there was any."""

from dataclasses import asdict, replace
from typing import Any, get_args

import pytest
import torch
from networks import Chain, Residual, images, make

import ldrf
from ldrf.config import PruneConfig
from ldrf.effort import EFFORTS, EffortName
from ldrf.errors import LdrfError


def made(**settings: Any) -> PruneConfig:
    return PruneConfig(**settings)


def test_there_is_one_row_of_numbers_for_each_word():
    assert tuple(EFFORTS) == get_args(EffortName)
    with pytest.raises(LdrfError, match="The 'effort' must be one of quick, default, thorough. Got 'much' instead"):
        made(effort="much")


def test_by_default_the_settings_are_as_they_were():
    usual = PruneConfig().filled()
    assert (usual.steps, usual.joint_steps, usual.joint_rate) == (30, 300, 0.015)
    assert usual.augment is None and usual.unit_images == 512
    assert PruneConfig(steps=20).steps_together == 200 and PruneConfig(steps=0).steps_together == 0


@pytest.mark.parametrize("effort", EFFORTS)
def test_what_is_set_by_hand_counts_more(effort: EffortName):
    own: dict[str, Any] = {"steps": 3, "joint_steps": 5, "joint_rate": 0.5, "augment": False, "unit_images": 7}
    filled = made(effort=effort, **own).filled()
    assert {name: value for name, value in asdict(filled).items() if name in own} == own
    assert filled == filled.filled() and filled.effort == effort
    assert made(effort=effort, steps=3).steps_together == 3 * EFFORTS[effort].share


def test_a_quick_run_finds_widths_and_units_on_the_first_images(monkeypatch: pytest.MonkeyPatch):
    seen: list[int] = []
    real = ldrf.pipeline.survey
    monkeypatch.setattr(
        "ldrf.pipeline.survey",
        lambda trace, dense, units, calibration, *more: (
            seen.append(calibration.examples) or real(trace, dense, units, calibration, *more)
        ),
    )
    config = PruneConfig(effort="quick", unit_images=16, joint_steps=2, chunk=8, held_out=0.5)
    result = ldrf.prune(make(Residual), [images(48)], speedup=1.5, config=config)
    assert seen == [16] and result.images == 48
    assert result.config.steps == 0 and result.config.joint_rate == EFFORTS["quick"].joint_rate


@pytest.mark.parametrize(
    ("changes", "method", "images_for_units"),
    [
        ({}, "ldrf", 16),
        ({"joint_steps": 0}, "ldrf", None),
        ({"solver": "closed-form"}, "ldrf", None),
        ({}, "li2017", None),
    ],
)
def test_units_see_all_images_unless_joint_steps_follow(changes, method, images_for_units, monkeypatch):
    monkeypatch.setitem(EFFORTS, "default", replace(EFFORTS["default"], steps=1, joint_steps=2, unit_images=16))
    config = PruneConfig(chunk=8, **changes)
    result = ldrf.prune(make(Chain), [images(48)], speedup=1.5, method=method, config=config)
    assert result.config.unit_images == images_for_units


def test_the_record_has_the_numbers_and_they_give_the_same_bits():
    config = PruneConfig(steps=2, joint_steps=3, chunk=8)
    by_word = ldrf.prune(make(Chain), [images(32)], speedup=1.5, config=config)
    by_hand = ldrf.prune(make(Chain), [images(32)], speedup=1.5, config=replace(by_word.config, effort="thorough"))
    assert by_word.config.joint_rate == 0.015 and by_hand.config.augment is True
    again = ldrf.prune(make(Chain), [images(32)], speedup=1.5, config=by_word.config)
    pairs = zip(by_word.model.parameters(), again.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
