"""Which of several processes prints."""

import pytest

from ldrf.cli.torchrun import GIVEN, launched, others_silent, speaks


@pytest.mark.parametrize(
    ("rank", "count", "is_launched", "is_speaking"),
    [(None, None, False, True), ("0", "1", False, True), ("0", "2", True, True), ("1", "2", True, False)],
)
def test_the_first_of_several_processes_prints(rank, count, is_launched, is_speaking, monkeypatch, capsys):
    for name, value in zip(GIVEN, (rank, count, "localhost", "1"), strict=True):
        monkeypatch.setenv(name, value) if rank is not None else monkeypatch.delenv(name, raising=False)
    assert launched() is is_launched and speaks() is is_speaking
    with others_silent():
        print("hello")
    assert capsys.readouterr().out == ("hello\n" if is_speaking else "")
