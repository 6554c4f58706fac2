"""``ldrf ship``: one command to a release, and again from its own file."""

import json

import pytest
from networks import NET
from timings import short_timing

from ldrf.cli import main
from ldrf.runtime.progress import STAGES


@pytest.mark.slow
def test_a_release_and_the_same_again_from_its_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plugin.py").write_text(NET)
    argv = [
        "ship",
        "plugin.py:net",
        "--data",
        "plugin.py:data",
        "--images",
        "32",
        "--multiple",
        "1",
        "--speedup",
        "1.4",
    ]
    argv += ["--solver", "closed-form", "--energy", "0.1", "--no-finetune"]
    short_timing(monkeypatch)
    assert main([*argv, "--out", "release"]) == 0
    told = capsys.readouterr()
    assert "agreement" in told.out and "See release/report.html" in told.out
    assert [line.partition(":")[0] for line in told.err.splitlines() if not line.startswith((" ", "warning"))] == [
        "prune",
        *STAGES,
        "write the file to run",
        "compare and time all networks",
    ]
    assert main(["ship", "release/ship.yaml", "--out", "again", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["file"] == "again/model.onnx" and [row["name"] for row in data["rows"]] == ["dense", "slim"]
    weights = [(tmp_path / folder / "slim" / "model.safetensors").read_bytes() for folder in ("release", "again")]
    assert weights[0] == weights[1]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["vgg9", "--data", "sample", "--out", "x"], "exactly one of latency, speedup, params, max_drop"),
        (["vgg9", "--speedup", "2", "--out", "x"], "Shipping needs --data"),
        (["vgg9", "--speedup", "2", "--data", "sample"], "Shipping needs --out"),
        (["nowhere.yaml", "--out", "x"], "Cannot read 'nowhere.yaml'"),
        (
            ["vgg9", "--data", "sample", "--out", "x", "--speedup", "2", "--int8", "--runtime", "torch"],
            "int8 is made for",
        ),
    ],
)
def test_mistakes_are_told_before_the_work(given, words, capsys):
    assert main(["ship", *given]) == 2
    assert words in capsys.readouterr().err


def test_a_file_with_a_wrong_value_is_told(tmp_path, capsys):
    (tmp_path / "ship.yaml").write_text("model: vgg9\ndata: sample\nimages: many\nspeedup: 2\n")
    assert main(["ship", str(tmp_path / "ship.yaml"), "--out", str(tmp_path / "x")]) == 2
    assert "'images' in" in capsys.readouterr().err
