"""``ldrf bench``: what is compared, and what is refused."""

import json
from pathlib import Path

import pytest

from ldrf.cli import main

ARCHITECTURE = ("--architecture", "plugin.py:net")


@pytest.mark.slow
def test_bench_compares_with_the_dense_model(here, capsys):
    argv = ["bench", "slim", *ARCHITECTURE, "--batch", "1,2", "--seconds", "0.003"]
    assert main([*argv, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    record = json.loads(Path("slim/ldrf.json").read_text())["metrics"]
    assert (printed["dense"]["macs"], printed["slim"]["macs"]) == (record["macs"]["dense"], record["macs"]["slim"])
    assert [t["batch"] for t in printed["timings"]] == [1, 1, 2, 2] and printed["against"] == "plugin.py:net"
    assert [x["name"] for x in printed["layers"]] == ["0", "2", "5"]
    assert main([*argv, "--against", "plugin.py:net", "--data", "plugin.py:data"]) == 0
    assert "fewer MACs" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["slim", *ARCHITECTURE, "--batch", "one"], 2, "--batch takes numbers separated by commas, such as 1,32"),
        (["plugin.py:net"], 2, "add --against MODEL to compare with"),
        (["slim", *ARCHITECTURE, "--backend", "tensorrt"], 1, "among torch, onnxruntime"),
        (["slim", *ARCHITECTURE, "--threads", "0"], 1, "'threads' must be whole numbers from 1 up"),
        (["slim"], 1, "to run that file, add --architecture plugin.py:net"),
    ],
)
def test_bench_refuses_what_makes_no_sense(here, argv, code, words, capsys):
    assert main(["bench", *argv]) == code
    assert words in capsys.readouterr().err
