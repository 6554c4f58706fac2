"""How a result was made: the command line, and the files it read."""

import pytest
from networks import NET

from ldrf.cli.commands import read_command
from ldrf.cli.provenance import argv, checksum, environment, files, noted
from ldrf.config import PruneConfig
from ldrf.errors import LdrfError


@pytest.mark.parametrize(
    "line",
    [
        "--data sample --speedup 2.5",
        "--data cifar10:a/b --widths a=1 b=2 --mirror --weights w.pth --images 7",
        "--data sample --keep a=0.5 --ignore x y --coupled False --steps 0 --memory 1GiB --lambda-2 0.5",
        "--data sample --params 2 --coupled True --method thinet --allocation paper --seed 0 --solver none",
    ],
)
def test_the_noted_command_line_is_the_command(line):
    command = read_command(["prune", "vgg9", *line.split(), "--out", "x"])
    for whole in (False, True):
        assert read_command([*argv(command, whole), "--out", "x"]) == command
    assert PruneConfig(memory="1GiB").memory == 2**30


def test_files_of_weights_and_code_are_noted_with_their_checksums(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plugin.py").write_text(NET)
    (tmp_path / "w.pth").write_bytes(b"weights")
    line = "prune plugin.py:net --data sample --weights w.pth --speedup 2 --out out --json"
    command = read_command(line.split())
    assert files(command) == {"weights": "w.pth", "model": "plugin.py"}
    note = noted(command)
    assert note["command"] == "ldrf prune plugin.py:net --data sample --speedup 2.0 --weights w.pth"
    assert note["files"]["weights"] == {"file": "w.pth", "sha256": checksum("w.pth")}
    assert note["environment"] == environment() and note["environment"]["threads"] >= 1
    (tmp_path / "w.pth").write_bytes(b"others")
    assert checksum("w.pth") != note["files"]["weights"]["sha256"]
    with pytest.raises(LdrfError, match="Cannot read 'gone.pth'"):
        checksum("gone.pth")
