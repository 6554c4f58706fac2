"""How the command line ends: exit codes, errors, warnings, and help."""

import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from fake_library import FakeResult, prune_args

import ldrf
from ldrf.cli import main
from ldrf.cli.commands import COMMANDS
from ldrf.errors import LdrfError, LdrfWarning


@pytest.mark.parametrize("command", [kind.command for kind in COMMANDS])
def test_every_command_has_an_example_in_its_help(command, capsys):
    assert main([command, "--help"]) == 0
    assert f"ldrf {command} " in " ".join(capsys.readouterr().out.partition("example:")[2].split())


@pytest.mark.parametrize("argv", [[], ["nonsense"], ["evaluate"], ["evaluate", "vgg9", "--data", "sample", "--bogus"]])
def test_a_wrong_command_line_ends_in_2(argv, capsys):
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["evaluate", "vgg99", "--data", "sample"], "Unknown model 'vgg99': expected vgg9, resnet20"),
        (["evaluate", "plugin.py:net", "--data", "nowhere"], "Unknown data 'nowhere': expected 'sample'"),
        (["evaluate", "plugin.py:net", "--data", "sample"], "The model can't take a batch of shape [64, 3, 32, 32]"),
        (["evaluate", "plugin.py:net", "--data", "plugin.py:data", "--images", "0"], "must be at least 1"),
        (["train", "vgg9", "--data", "imagefolder:x", "--out", "out"], "Expected CIFAR-10"),
        (["train", "vgg9", "--data", "cifar10:x", "--out", "out"], "No CIFAR-10 train set in 'x'"),
    ],
)
def test_an_error_is_one_line_and_ends_in_1(plugin, argv, words, capsys):
    assert main(argv) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ") and captured.err.count("\n") == 1
    assert words in captured.err


def test_an_error_of_the_library_ends_in_1(plugin, core, monkeypatch, capsys):
    def fail(*_, **__):
        raise LdrfError("No such layer.")

    monkeypatch.setattr(ldrf, "prune", fail)
    assert main(prune_args(plugin, "--speedup", "2")) == 1
    assert capsys.readouterr().err == "error: No such layer.\n"


def test_ctrl_c_ends_in_130_and_writes_nothing(plugin, core, monkeypatch, capsys):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(ldrf, "prune", interrupt)
    assert main(prune_args(plugin, "--speedup", "2")) == 130
    assert capsys.readouterr().err == "error: interrupted\n"
    assert not core.saved and not Path("out").exists()


def test_a_bug_is_not_hidden(plugin, core, monkeypatch):
    def fail(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr(ldrf, "prune", fail)
    with pytest.raises(ZeroDivisionError):
        main(prune_args(plugin, "--speedup", "2"))


@pytest.mark.filterwarnings("default::ldrf.errors.LdrfWarning")
def test_a_warning_is_one_line(plugin, core, monkeypatch, capsys):
    def warn(model, batches, **_):
        warnings.warn("few rows", LdrfWarning, stacklevel=1)
        return FakeResult(model)

    monkeypatch.setattr(ldrf, "prune", warn)
    assert main(prune_args(plugin, "--speedup", "2")) == 0
    assert capsys.readouterr().err == "warning: few rows\n"


@pytest.mark.slow
def test_python_m_ldrf_is_the_same_command():
    done = subprocess.run([sys.executable, "-m", "ldrf", "nonsense"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "demo" in done.stderr and done.stdout == ""
