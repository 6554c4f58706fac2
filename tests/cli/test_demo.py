"""``ldrf demo`` prunes what is bundled."""

from pathlib import Path

from torch import nn

from ldrf.cli import main


def test_demo_prunes_the_bundled_network_on_the_sample(core, tmp_path, monkeypatch):
    class Tiny(nn.Sequential):
        def __init__(self) -> None:
            super().__init__(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 10))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ldrf.cli.models.pretrained_vgg9", Tiny)
    assert main(["demo"]) == 0
    assert core.pruned[0]["speedup"] == 3.0 and core.pruned[0]["images"] == 2000
    assert core.saved[0]["folder"] == Path("runs/demo") and core.saved[0]["source"]["model"] == "vgg9"
    assert core.saved[0]["metrics"]["accuracy"]["images"] == 2000
