"""Tables are exact where time is made of blocks of channels, though few sizes are measured."""

import pytest
from deployment_pieces import PIECES

from ldrf.deployment.tables import Table, Wanted, along, elements, sampled

WIDE: tuple[int, ...] = tuple(range(8, 513, 8))


def blocks(inputs: int, outputs: int) -> float:
    """Seconds of a kernel that pads outputs to 16, with an overhead and a cost of reading."""
    return 20 + 0.5 * inputs + 0.003 * inputs * (-(-outputs // 16) * 16)


def test_blocks_are_seen_between_measured_sizes():
    wanted = Wanted(PIECES[0].geometry, WIDE, WIDE)
    table = Table(wanted, {(i, o): blocks(i, o) for i, o in wanted.points()})
    assert len(wanted.points()) < 60
    for i in WIDE[::3]:
        for o in WIDE[::5]:
            assert table.at(i, o) == pytest.approx(blocks(i, o), rel=0.03), (i, o)


def test_a_grouped_layer_has_one_side():
    wanted = Wanted(PIECES[2].geometry, (8, 16, 24), (8, 16, 24))
    assert wanted.points() == [(8, 8), (16, 16), (24, 24)]
    assert Table(wanted, {(8, 8): 1.0, (24, 24): 3.0}).at(16, 16) == 2.0


def test_few_sizes_are_all_measured_and_many_in_pairs():
    assert sampled(WIDE[:24]) == WIDE[:24]
    line = sampled(WIDE)
    assert len(line) <= 24 and min(line) == 8 and max(line) == 512
    assert {size % 16 for size in line} == {0, 8}


def test_a_size_is_compared_with_those_of_its_kind():
    line = {8: 1.0, 16: 1.0, 40: 3.0, 48: 3.0}
    assert along(line, 24) == 2.0 and along(line, 32) == 2.0  # between 8 and 40, and between 16 and 48
    assert along(line, 44) == 3.0 and along(line, 64) == 3.0


def test_elements_count_maps_and_weights():
    assert elements(PIECES[5]) == 3 * 8 + 2 * 3 * 4 + 4 * 8
