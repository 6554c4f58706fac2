"""Ctrl-C says how the command goes on, where something was kept."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_library import prune_args

import ldrf
from ldrf.cli import main
from ldrf.cli.going_on import how_to_go_on


def interrupt(*_, **__):
    Path("out/ldrf-journal").mkdir(parents=True)
    Path("out/ldrf-journal/learned.safetensors").touch()
    raise KeyboardInterrupt


def test_an_interrupted_run_says_how_to_go_on(plugin, core, monkeypatch, capsys):
    monkeypatch.setattr(ldrf, "prune", interrupt)
    assert main(prune_args(plugin, "--speedup", "2")) == 130
    assert "interrupted: what was done is kept, and the same command with --resume goes on" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "kept", "words"),
    [
        ("finetune", "out.resume.pt", "the same command goes on"),
        ("ship", "out/release.json", "the same command goes on"),
        ("sweep", "out/a", "the same command with --resume goes on"),
        ("inspect", "out/a", ""),
        ("prune", "out/a", ""),
    ],
)
def test_commands_go_on_by_what_they_kept(command, kept, words, tmp_path):
    arguments = SimpleNamespace(command=command, out=tmp_path / "out")
    assert how_to_go_on(arguments) == how_to_go_on(None) == ""
    (tmp_path / kept).parent.mkdir(exist_ok=True)
    (tmp_path / kept).touch()
    assert words in how_to_go_on(arguments) and bool(words) == bool(how_to_go_on(arguments))
