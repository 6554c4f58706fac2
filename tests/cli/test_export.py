"""``ldrf export``: formats, places, and what it needs to know."""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

from ldrf.cli import main

ARCHITECTURE = ("--architecture", "plugin.py:net")


def test_export_writes_beside_the_result_and_says_how_close_it_is(here, capsys):
    assert main(["export", "slim", *ARCHITECTURE, "--format", "pt2", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["file"] == "slim/slim.pt2" and printed["format"] == "pt2" and printed["max_error"] < 1e-5
    assert printed["bytes"] == (here / "slim/slim.pt2").stat().st_size
    assert torch.export.load("slim/slim.pt2").module()(torch.rand(5, 3, 8, 8)).shape == (5, 4)
    assert main(["evaluate", "slim", *ARCHITECTURE, "--data", "plugin.py:data"]) == 0, "still a result folder"
    assert main(["export", "slim", *ARCHITECTURE, "--format", "pt2"]) == 1
    assert "'slim/slim.pt2' is there already" in capsys.readouterr().err


def test_export_takes_the_format_from_the_file(here, capsys):
    assert main(["export", "slim", *ARCHITECTURE, "--out", "a/state.safetensors"]) == 0
    out = capsys.readouterr().out
    assert "state-dict" in out and "largest difference" in out
    assert load_file("a/state.safetensors")["0.weight"].shape == (4, 3, 3, 3)


def test_export_without_onnx_says_how_to_get_it(here, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    before = sorted(p.name for p in Path("slim").iterdir())
    assert main(["export", "slim", *ARCHITECTURE]) == 1
    assert capsys.readouterr().err == "error: ONNX needs onnxruntime: pip install 'ldrf[onnx]'.\n"
    assert sorted(p.name for p in Path("slim").iterdir()) == before


def test_export_of_a_model_needs_a_file_and_inputs(here, capsys):
    assert main(["export", "plugin.py:net"]) == 2
    assert "say where to write with --out" in capsys.readouterr().err
    assert main(["export", "plugin.py:net", "--out", "x.pt2"]) == 1
    assert "does not say what inputs it takes: add --data" in capsys.readouterr().err
    assert main(["export", "plugin.py:net", "--out", "x.pt2", "--data", "plugin.py:data"]) == 0
