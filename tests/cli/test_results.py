"""What the command line does with a result folder: export it, time it, fine-tune it."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from networks import NET
from safetensors.torch import load_file

import ldrf
from ldrf.cli import main
from ldrf.errors import LdrfError
from ldrf.files.record import sealed

ARCHITECTURE = ("--architecture", "plugin.py:net")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with the plug-in and a result made from it, once for all tests."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "plugin.py").write_text(NET)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        argv = ["prune", "plugin.py:net", "--data", "plugin.py:data", "--out", "slim", "--widths", "0=4", "2=5"]
        assert main([*argv, "--solver", "closed-form"]) == 0
    return folder


@pytest.fixture
def here(made, tmp_path, monkeypatch, capsys) -> Path:
    """The working folder, with ``plugin.py`` and the result ``slim``."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    return tmp_path


def finetune_args(*more: str) -> list[str]:
    settings = ["--epochs", "2", "--batch", "16", "--rate", "0.003"]
    return ["finetune", "slim", *ARCHITECTURE, "--data", "plugin.py:data", "--out", "tuned", *settings, *more]


@pytest.mark.parametrize("command", ["export", "bench", "finetune"])
def test_every_command_has_an_example_in_its_help(command, capsys):
    assert main([command, "--help"]) == 0
    assert f"For example: ldrf {command} runs/demo" in capsys.readouterr().out


# export


def test_export_writes_beside_the_result_and_says_how_close_it_is(here, capsys):
    assert main(["export", "slim", *ARCHITECTURE, "--format", "pt2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["file"] == "slim/slim.pt2" and found["format"] == "pt2" and found["max_error"] < 1e-5
    assert found["bytes"] == (here / "slim/slim.pt2").stat().st_size
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
    import sys

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


# bench


def test_bench_compares_with_the_dense_model(here, capsys):
    argv = ["bench", "slim", *ARCHITECTURE, "--batch", "1,2", "--seconds", "0.003"]
    assert main([*argv, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    record = json.loads(Path("slim/ldrf.json").read_text())["metrics"]
    assert (found["dense"]["macs"], found["slim"]["macs"]) == (record["macs"]["dense"], record["macs"]["slim"])
    assert [t["batch"] for t in found["timings"]] == [1, 1, 2, 2] and found["against"] == "plugin.py:net"
    assert [x["name"] for x in found["layers"]] == ["0", "2", "5"]
    assert main([*argv, "--against", "plugin.py:net", "--data", "plugin.py:data"]) == 0
    assert "fewer MACs" in capsys.readouterr().out


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


# finetune


def test_finetune_makes_a_result_folder_with_the_curve(here, capsys):
    assert main(finetune_args("--tensorboard", "tb", "--json")) == 0
    found = json.loads(capsys.readouterr().out)
    assert [e["epoch"] for e in found["epochs"]] == [1, 2] and found["ended"] >= found["began"]
    before, after = (json.loads(Path(f, "ldrf.json").read_text()) for f in ("slim", "tuned"))
    assert after["widths"] == before["widths"] and after["source"] == before["source"]
    assert after["finetune"]["epochs"] == found["epochs"] and after["metrics"] == found["metrics"]
    accuracy = found["metrics"]["accuracy"]
    assert accuracy["before"] == before["metrics"]["accuracy"]["slim"]
    assert accuracy["dense"] == before["metrics"]["accuracy"]["dense"] and accuracy["images"] == 64
    assert list(Path("tb").iterdir()) and not list(here.glob("*.resume.pt"))
    assert main(["evaluate", "tuned", *ARCHITECTURE, "--data", "plugin.py:data", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["top1"] == accuracy["slim"]


def test_finetune_goes_on_after_a_kill(here, capsys, monkeypatch):
    real, calls = ldrf.finetune, []

    def killed(*given, on_event=None, **named):
        def stop(event, data):
            if event == "epoch":
                raise KeyboardInterrupt

        calls.append(named["resume"])
        return real(*given, **named, on_event=stop)

    with monkeypatch.context() as patch:
        patch.setattr(ldrf, "finetune", killed)
        assert main(finetune_args()) == 130
    assert not Path("tuned").exists() and calls[0].is_file() and calls[0].name == "tuned.resume.pt"
    assert main(finetune_args("--test-images", "0")) == 0
    out = capsys.readouterr().out
    assert "held-out images" in out and "Saved in tuned" in out and "top-1" not in out
    assert not calls[0].exists()
    assert main(finetune_args()) == 1
    assert "add --force to replace it" in capsys.readouterr().err


def test_finetune_prints_what_was_won_back(here, capsys):
    assert main(finetune_args("--labels", "1", "--no-augment")) == 0
    out = capsys.readouterr().out
    assert "accuracy" in out and "slim before" in out and "points" in out


def test_finetune_names_what_is_missing(here, capsys):
    assert main(["finetune", "plugin.py:net", "--data", "plugin.py:data", "--out", "tuned"]) == 1
    assert "'plugin.py:net' is not a result folder" in capsys.readouterr().err
    assert main(finetune_args("--weights", "gone.pth")) == 1
    assert "No weights file 'gone.pth'" in capsys.readouterr().err
    assert not Path("tuned").exists()


def test_a_folder_without_shapes_needs_data(here, capsys):
    record = json.loads(Path("slim/ldrf.json").read_text())
    del record["inputs"]
    Path("slim/ldrf.json").write_text(json.dumps(sealed(record)))
    assert main(["export", "slim", *ARCHITECTURE, "--format", "pt2"]) == 1
    assert "add --data" in capsys.readouterr().err


def test_a_result_remembers_the_shapes_of_its_inputs(here):
    record = json.loads(Path("slim/ldrf.json").read_text())
    assert record["inputs"] == {"args": [{"shape": [3, 8, 8], "dtype": "float32"}], "kwargs": {}}
    with pytest.raises(LdrfError, match="needs an 'example'"):
        ldrf.export(torch.nn.Linear(2, 2), "x.onnx")
