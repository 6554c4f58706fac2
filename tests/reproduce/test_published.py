"""Points of others stand beside ours, marked as published, with the loss from their own dense network."""

import pytest

from ldrf.reproduce.published import AUTOBOT_VGG16, SFVR_RESNET20, Published, beside
from ldrf.reproduce.recipe import QUICK, Outcomes


def outcomes() -> Outcomes:
    cells = {
        "dense": {"outcome": {"top1": 91.73, "macs": 200}},
        "ldrf-2x": {"outcome": {"top1": 89.0, "macs": 100, "dense_macs": 200}},
    }
    return Outcomes(cells, QUICK, frozenset(cells))


@pytest.mark.parametrize("others", [AUTOBOT_VGG16, SFVR_RESNET20], ids=lambda o: o.method)
def test_every_point_is_marked_as_published(others: Published):
    section = beside(outcomes(), "ResNet-20", ("ldrf-2x", "ldrf-3x"), others)
    rows = section.tables[0].rows
    assert rows[0] == ("LDRF, measured here", "ResNet-20", "2.00x", "91.73", "89.00", "2.73")
    assert rows[1][2:] == ("–", "91.73", "–", "–"), "a cell that was not run"
    assert len(rows) == 2 + len(others.points) and all("as published" in row[0] for row in rows[2:])
    assert "**as published**" in section.text and ("another network" in section.text) is (others is AUTOBOT_VGG16)


def test_shares_of_macs_are_speed_ups():
    assert [round(point.speedup, 2) for point in SFVR_RESNET20.points] == [1.41, 1.64, 1.96]
    rows = beside(outcomes(), "ResNet-20", (), SFVR_RESNET20).tables[0].rows
    assert [row[-1] for row in rows] == ["5.80", "12.40", "24.90"]
