"""``ldrf repeat`` makes a result again from what its folder says, compares it, and runs no code that was not named."""

import contextlib
import io
import json
import shutil
from pathlib import Path

import pytest
import torch
from networks import NET
from safetensors.torch import load_file, save_file

import ldrf
from ldrf.cli import main
from ldrf.cli.provenance import checksum
from ldrf.data.plugins import call_factory
from ldrf.files.record import sealed

CODE = ["--model", "plugin.py:net", "--data", "plugin.py:data"]


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    """A folder with a result of the command line and what it was made from, made once."""
    root = tmp_path_factory.mktemp("original")
    with contextlib.chdir(root), contextlib.redirect_stdout(io.StringIO()):
        Path("plugin.py").write_text(NET)
        save_file(call_factory("plugin.py:net").state_dict(), "w.safetensors")
        prune = ["prune", "plugin.py:net", "--data", "plugin.py:data", "--weights", "w.safetensors", "--out", "out"]
        prune += ["--widths", "0=5", "2=6", "--steps", "6", "--images", "40", "--mirror", "--seed", "3"]
        assert main([*prune, "--test-images", "0"]) == 0
    return root


@pytest.fixture
def made(original, tmp_path, monkeypatch) -> Path:
    """That result folder, in the working folder."""
    shutil.copytree(original, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return Path("out")


def told(capsys) -> dict:
    return json.loads(capsys.readouterr().out)


@pytest.mark.slow
def test_the_same_bits_come_out_again(made, capsys):
    assert main(["repeat", "out", *CODE, "--json"]) == 0
    found = told(capsys)
    assert found["same_bits"] and found["largest_difference"] == 0 and found["versions"] == {}
    assert found["same_widths"] and found["same_weights"] and found["same_images"]
    assert found["command"].startswith(
        "ldrf prune plugin.py:net --data plugin.py:data --widths 0=5 2=6 --weights w.safetensors --images 40"
    )
    assert sorted(p.name for p in Path().iterdir() if p.name != "__pycache__") == ["out", "plugin.py", "w.safetensors"]
    assert main(["repeat", "out", *CODE, "--out", "again"]) == 0
    shown = capsys.readouterr().out
    assert "bits of the slim model" in shown and "the same" in shown and "different" not in shown
    assert Path("again/model.safetensors").read_bytes() == Path("out/model.safetensors").read_bytes()


@pytest.mark.slow
def test_what_differs_is_shown_and_ends_in_3(made, capsys):
    tensors = load_file(made / "model.safetensors")
    tensors["0.weight"] = tensors["0.weight"] + 0.25
    save_file(tensors, made / "model.safetensors")
    record = json.loads((made / "ldrf.json").read_text())
    record["sha256"], record["versions"]["torch"] = checksum(str(made / "model.safetensors")), "1.0"
    record["checksums"]["inputs"] = "0" * 64
    (made / "ldrf.json").write_text(json.dumps(sealed(record)))
    assert main(["repeat", "out", *CODE, "--json"]) == 3
    found = told(capsys)
    assert not found["same_bits"] and found["largest_difference"] == pytest.approx(0.25, rel=1e-5)
    assert found["same_widths"] and not found["same_images"]
    assert found["versions"] == {"torch": ["1.0", torch.__version__]}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ([], "was made with 'plugin.py:net': to run that file, add --model plugin.py:net"),
        (CODE[:2], "was made with 'plugin.py:data': to run that file, add --data plugin.py:data"),
    ],
)
def test_code_is_run_only_when_it_is_named(made, more, words, capsys):
    Path("plugin.py").write_text("raise SystemExit('this must not run')")
    assert main(["repeat", "out", *more]) == 1
    assert words in capsys.readouterr().err


def test_changed_or_missing_files_are_named(made, capsys):
    Path("plugin.py").write_text(NET.replace("rand(16", "rand(17"))
    assert main(["repeat", "out", *CODE]) == 1
    assert "'plugin.py' is not what 'out' was made with: its contents have changed" in capsys.readouterr().err
    Path("plugin.py").unlink()
    assert main(["repeat", "out", *CODE]) == 1
    assert "Cannot read 'plugin.py': No such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"run": None}, "does not say which command made it: only results of 'ldrf prune'"),
        ({"run": {"argv": ["train", "vgg9"]}}, "does not say which command made it"),
        ({"run": {"argv": ["prune", "vgg9", "--nonsense"]}}, "does not understand the command"),
        ({"run": {"argv": ["prune", "--help"]}}, "does not understand the command"),
        ({"run": {"argv": ["prune", "vgg9", "--data", "cifar10:gone", "--speedup", "2"]}}, "No CIFAR-10 train set"),
        ({"run": {"argv": ["prune", "vgg9", "--data", "sample", "--weights", "x", "--speedup", "2"]}}, "read 'x'"),
        ({"finetune": {}}, "'out' was fine-tuned: repeat the pruned result"),
    ],
)
def test_a_result_that_cannot_be_repeated_says_why(made, change, words, capsys):
    record = json.loads((made / "ldrf.json").read_text())
    (made / "ldrf.json").write_text(json.dumps(sealed(record | change)))
    assert main(["repeat", "out"]) == 1
    captured = capsys.readouterr()
    assert words in captured.err and captured.err.count("\n") == 1 and captured.out == ""


@pytest.mark.slow
def test_a_result_by_latency_is_repeated_with_the_widths_it_came_to(made, capsys):
    record = json.loads((made / "ldrf.json").read_text())
    argv = record["run"]["argv"]
    at = argv.index("--widths")
    argv[at : at + 3] = ["--latency", "2"]
    (made / "ldrf.json").write_text(json.dumps(sealed(record)))
    assert main(["repeat", "out", *CODE, "--json"]) == 0
    assert told(capsys)["same_bits"]


def test_a_result_of_the_library_cannot_be_repeated(pruned, tmp_path, capsys):
    from networks import Chain

    ldrf.save(pruned(Chain), tmp_path / "out")
    assert main(["repeat", str(tmp_path / "out")]) == 1
    assert "does not say which command" in capsys.readouterr().err


@pytest.mark.slow
def test_weights_are_found_where_they_are_now_and_must_be_the_same(made, capsys):
    Path("w.safetensors").rename("moved.safetensors")
    assert main(["repeat", "out", *CODE]) == 1 and "Cannot read 'w.safetensors'" in capsys.readouterr().err
    assert main(["repeat", "out", *CODE, "--weights", "moved.safetensors"]) == 0
    tensors = load_file("moved.safetensors")
    save_file({name: 2 * tensor for name, tensor in tensors.items()}, "moved.safetensors")
    capsys.readouterr()
    assert main(["repeat", "out", *CODE, "--weights", "moved.safetensors"]) == 1
    assert "'moved.safetensors' is not what 'out' was made with" in capsys.readouterr().err
