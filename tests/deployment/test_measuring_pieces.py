"""Tables hold what the clock says; what is known is not measured again, and what scatters is measured more often."""

import itertools

import pytest
from deployment_pieces import PIECES
from fake_runtime import FakeClock, piece_seconds

from ldrf.deployment.cache import TimeCache
from ldrf.deployment.geometry import Piece
from ldrf.deployment.measuring_pieces import ROUNDS, measure_tables
from ldrf.deployment.runtime import Runtime
from ldrf.deployment.tables import Wanted
from ldrf.errors import LdrfError

WANTED = Wanted(PIECES[0].geometry, (8, 16, 24), (8, 16))


def test_a_second_run_measures_nothing(tmp_path):
    clock, cache = FakeClock(), TimeCache(tmp_path / "times.json", {})
    first = measure_tables([WANTED], clock.runtime(), 2, 1, cache)
    measured = len(clock.pieces)
    assert first[0].at(16, 8) == pytest.approx(piece_seconds(Piece(WANTED.geometry, 16, 8, 2)))
    assert measure_tables([WANTED], clock.runtime(), 2, 1, cache) == first
    assert len(clock.pieces) == measured == len(WANTED.points())


def test_pieces_that_scatter_are_timed_again(tmp_path):
    noise = itertools.cycle((1.0, 1.0, 1.0, 3.0, 2.0))
    clock = FakeClock(lambda: next(noise))
    table = measure_tables([WANTED], clock.runtime(), 1, 1, TimeCache(tmp_path / "times.json", {}))[0]
    assert len(clock.pieces) > len(WANTED.points())
    quiet = piece_seconds(Piece(WANTED.geometry, 24, 16, 1))
    assert quiet <= table.at(24, 16) < 1.6 * quiet


def test_a_layer_that_cannot_be_timed_is_named(tmp_path):
    def refuse(pieces, threads, rounds):
        assert rounds == ROUNDS
        raise RuntimeError("no such kernel")

    runtime = Runtime(lambda: "1", "", FakeClock().prepare, refuse)
    with pytest.raises(LdrfError, match="cannot be timed by itself .*no such kernel"):
        measure_tables([WANTED], runtime, 1, 1, TimeCache(tmp_path / "times.json", {}))
