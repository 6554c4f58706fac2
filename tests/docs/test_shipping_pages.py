"""What docs/ship.md and docs/cost.md say works: settings are read, their Python runs, at small scale."""

import re
from pathlib import Path

import pytest
import torch
import yaml
from networks import Chain, images, make
from timings import short_timing

import ldrf
from ldrf.cli.arguments.ship import OWN, Ship
from ldrf.effort import EFFORTS

DOCS = Path(__file__).parents[2] / "docs"


def block(language: str, page: str = "ship.md") -> str:
    return re.findall(rf"^```{language}\n(.*?)^```", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)[0]


def test_the_settings_file_is_read(tmp_path):
    (tmp_path / "ship.yaml").write_text(block("yaml"))
    own, config = Ship(str(tmp_path / "ship.yaml"), out=Path("release")).settings()
    given = yaml.safe_load(block("yaml"))
    assert {name: own[name] for name in OWN if name in given} == {n: v for n, v in given.items() if n in OWN}
    assert config.target == {"latency": 1.5} and config.deployment.threads == 4
    assert config.finetune is not None and config.finetune.minutes == 20


@pytest.mark.slow
def test_the_python_of_the_page_ships(tmp_path, monkeypatch, capsys):
    pytest.importorskip("onnxruntime")
    short_timing(monkeypatch)
    monkeypatch.chdir(tmp_path)
    small = "prune=ldrf.PruneConfig(solver='closed-form', energy=0.1, multiple=1), finetune=None, max_int8_drop=100"
    code = block("python").replace("latency=2.0", f"speedup=1.5, {small}")
    labelled = [(images(10, seed=2), torch.arange(10) % 5)]
    exec(code, {"model": make(Chain), "batches": [images(32)], "labelled": labelled})
    told = capsys.readouterr().out
    assert "dense" in told and told.strip().endswith("release/model.int8.onnx")
    assert ldrf.load("release/slim", make(Chain)) is not None


@pytest.mark.slow
def test_the_file_for_a_phone_is_what_executorch_and_torch_load(tmp_path, monkeypatch):
    short_timing(monkeypatch)
    config = ldrf.ShipConfig(
        speedup=1.5,
        deployment=ldrf.Deployment("torch"),
        prune=ldrf.PruneConfig(solver="closed-form", energy=0.1, multiple=1),
        finetune=None,
    )
    shipped = ldrf.ship(make(Chain), [images(32)], tmp_path / "release", config)
    assert shipped.file.name == "model.pt2" and shipped.int8_file is None
    loaded = torch.export.load(tmp_path / "release" / "model.pt2").module()
    assert torch.allclose(loaded(images(3)), shipped.model(images(3)), atol=1e-5)


@pytest.mark.slow
def test_the_estimate_of_minutes_counts_every_stage_of_a_real_trial(capsys):
    """With as many batches as the trial had, what grows is counted once, and the joint steps as often as there are."""
    batches = [images(16, seed=seed) for seed in range(4)]
    names = {"ldrf": ldrf, "model": make(Chain), "batches": batches}
    exec(block("python", "cost.md").replace("speedup=2.0", "speedup=1.3"), names)
    spent, more = names["trial"].seconds, EFFORTS["default"].joint_steps / names["steps"] - 1
    assert set(spent) == {"trace", "plan", "reconstruct", "together", "recompose"}
    assert names["seconds"] == pytest.approx(sum(spent.values()) + more * spent["together"], rel=0.01)
    assert capsys.readouterr().out.startswith("about ")
