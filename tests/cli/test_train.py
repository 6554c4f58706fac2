"""``ldrf train``: starts from given weights, resumes, and keeps half precision."""

import json

import torch
from safetensors.torch import load_file

from ldrf.cli import main
from ldrf.cli import train as train_command
from ldrf.data.cifar10 import LabelledImages
from ldrf.zoo.cifar_resnet import resnet20


def test_a_recipe_that_makes_no_sense_ends_in_an_error(capsys):
    assert main(["train", "vgg9", "--data", "sample", "--out", "out", "--epochs", "0"]) in (1, 2)
    assert "must be positive" in capsys.readouterr().err


def test_training_goes_on_from_given_weights(tmp_path, monkeypatch, capsys):
    pixels = torch.randint(0, 256, (20, 3, 32, 32), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    monkeypatch.setattr(train_command, "open_cifar10", lambda *_: LabelledImages(pixels, torch.arange(20) % 10))
    torch.manual_seed(5)
    start = {k: v + 0.5 if k == "linear.bias" else v for k, v in resnet20().state_dict().items()}
    torch.save(start, tmp_path / "start.pth")
    argv = ["train", "resnet20", "--data", "cifar10:folder", "--out", str(tmp_path / "run"), "--epochs", "1"]
    assert main([*argv, "--rate", "1e-9", "--weights", str(tmp_path / "start.pth"), "--json"]) == 0
    kept = load_file(json.loads(capsys.readouterr().out)["weights"])
    torch.testing.assert_close(kept["linear.bias"], start["linear.bias"])


def test_train_resumes_and_keeps_half_precision_weights(tmp_path, monkeypatch, capsys):
    def images(name, split):
        assert name == "cifar10:folder"
        generator = torch.Generator().manual_seed(len(split))
        pixels = torch.randint(0, 256, (20, 3, 32, 32), generator=generator, dtype=torch.uint8)
        return LabelledImages(pixels, torch.arange(20) % 10)

    monkeypatch.setattr(train_command, "open_cifar10", images)
    argv = ["train", "resnet20", "--data", "cifar10:folder", "--out", str(tmp_path), "--epochs", "1", "--batch", "10"]
    assert main([*argv, "--json"]) == 0
    captured = capsys.readouterr()
    printed = json.loads(captured.out)
    assert "epoch 1/1" in captured.err and printed["recipe"]["epochs"] == 1
    kept = load_file(printed["weights"])
    assert kept["conv1.weight"].dtype == torch.float16
    assert main(argv) == 0  # nothing left to do
    captured = capsys.readouterr()
    assert "epoch 1/1" not in captured.out and "top-1" in captured.out
    assert main([*argv[:-3], "2", "--batch", "10"]) == 1
    assert "use the same settings to resume" in capsys.readouterr().err
