"""Folders that a command may write a result to, by the same rule as calls, and those refused before the work."""

from pathlib import Path

from fake_library import prune_args

from ldrf.cli import main


def test_prune_refuses_a_full_folder_before_the_work(plugin, core, capsys):
    Path("out").mkdir()
    assert main(prune_args(plugin, "--speedup", "2")) == 0  # empty: fine
    Path("out/ldrf.json").write_text("{}")
    assert main(prune_args(plugin, "--speedup", "2")) == 1
    assert "or replace it by force=True (--force)." in capsys.readouterr().err
    assert main(prune_args(plugin, "--speedup", "2", "--force")) == 0
    assert len(core.pruned) == 2


def test_force_does_not_replace_what_is_no_result(plugin, core, capsys):
    Path("out").mkdir()
    Path("out/thesis.tex").write_text("years of work")
    assert main(prune_args(plugin, "--speedup", "2", "--force")) == 1
    assert "holds something else than an ldrf result" in capsys.readouterr().err
    Path("file").touch()
    assert main(["prune", "plugin.py:net", "--data", "sample", "--speedup", "2", "--out", "file"]) == 1
    assert "is a file" in capsys.readouterr().err
    assert not core.pruned


def test_an_unfinished_run_is_resumed_or_thrown_away_but_not_by_accident(plugin, core, capsys):
    Path("out/ldrf-journal").mkdir(parents=True)
    Path("out/ldrf-journal/learned.safetensors").touch()
    assert main(prune_args(plugin, "--speedup", "2")) == 1
    assert "'out' holds an unfinished run, 0 of its units done: go on with it by" in capsys.readouterr().err
    assert main(prune_args(plugin, "--speedup", "2", "--resume")) == 0 and core.pruned[0]["resume"]
    assert Path("out/ldrf-journal").exists()
    assert main(prune_args(plugin, "--speedup", "2", "--force")) == 0
    assert not Path("out/ldrf-journal").exists() and len(core.pruned) == 2
