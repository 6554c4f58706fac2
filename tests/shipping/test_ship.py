"""``ship``: all files of a release, steps done once, and only what depends on a changed setting done again."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import timings
import torch
from networks import Chain, images, make

import ldrf
from ldrf.errors import LdrfError
from ldrf.shipping import release
from ldrf.shipping.recipe import read_config, read_yaml

pytest.importorskip("onnxruntime")
pytest.importorskip("yaml")

CONFIG = ldrf.ShipConfig(
    speedup=1.5,
    int8=True,
    max_int8_drop=100,
    held_out=0.25,
    prune=ldrf.PruneConfig(solver="closed-form", energy=0.1, multiple=1),
    finetune=ldrf.FinetuneConfig(epochs=1, batch=8),
)


@pytest.fixture(scope="module", autouse=True)
def short_timing():
    with pytest.MonkeyPatch.context() as patch:
        timings.short_timing(patch)
        yield


def batches():
    return [images(48)]


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    labels = torch.arange(16) % 5
    folder = tmp_path_factory.mktemp("ship") / "release"
    return ldrf.ship(make(Chain), batches(), folder, CONFIG, test=[{"x": images(16, seed=4), "labels": labels}])


@pytest.fixture
def steps_done(shipped):
    """``steps_done(config)``: the steps that are done anew with these settings."""

    def done(config):
        seen = []
        test = [(images(16, seed=4), torch.arange(16) % 5)]
        on_event = lambda event, data: seen.append(data["name"]) if event == "stepped" else None  # noqa: E731
        result = ldrf.ship(make(Chain), batches(), shipped.folder, config, test=test, on_event=on_event)
        return seen, result

    return done


@pytest.mark.slow
def test_everything_is_there_and_says_the_same(shipped):
    names = {path.name for path in shipped.folder.iterdir()}
    assert names == {
        ".steps",
        "example.npz",
        "example.py",
        "model.int8.onnx",
        "model.onnx",
        "report.html",
        "ship.yaml",
        "slim",
    }
    assert [row.name for row in shipped.rows] == ["dense", "slim", "tuned", "int8"]
    assert shipped.rows[0].agreement == 100 and shipped.judged == 12 and shipped.tested == 16
    assert all(row.milliseconds > 0 and row.top1 is not None for row in shipped.rows)
    assert read_config(read_yaml(shipped.folder / "ship.yaml")) == CONFIG
    slim = ldrf.load(shipped.folder / "slim", make(Chain))
    x = images(4, seed=8)
    assert torch.equal(slim(x), shipped.model(x))
    page = (shipped.folder / "report.html").read_text()
    assert "What each step gained and cost" in page and "model.int8.onnx" in page
    assert "int8" in str(shipped) and "To run:" in str(shipped)


@pytest.mark.slow
def test_the_example_runs_by_itself(shipped):
    ran = subprocess.run([sys.executable, shipped.folder / "example.py"], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "difference from the answer that was stored: 0" in ran.stdout and ran.stdout.count("class") == 5
    program = (shipped.folder / "example.py").read_text()
    assert "ldrf" not in program and "import torch" not in program


@pytest.mark.slow
def test_only_what_depends_on_a_change_is_done_again(steps_done):
    assert steps_done(CONFIG)[0] == []
    assert steps_done(replace(CONFIG, max_int8_drop=99))[0] == ["int8", "measure"]
    seen, result = steps_done(replace(CONFIG, int8=False))
    assert seen == ["measure"] and result.int8_file is None and not (result.folder / "model.int8.onnx").exists()
    seen, result = steps_done(replace(CONFIG, finetune=None, int8=False))
    assert seen == ["export", "measure"] and [row.name for row in result.rows] == ["dense", "slim"]


@pytest.mark.slow
def test_int8_that_costs_too_much_is_refused_with_the_layers(steps_done, monkeypatch):
    scores = iter([90.0, 70.0] + [80.0] * 9)  # before and after int8, then those of the table
    monkeypatch.setattr(release, "agreement", lambda *_: next(scores))
    _, result = steps_done(replace(CONFIG, max_int8_drop=5))
    assert result.int8_file is None and not (result.folder / "model.int8.onnx").exists()
    assert any("int8 is refused: it loses 20.00 points" in note and "conv" in note for note in result.notes)


@pytest.mark.slow
def test_killed_in_fine_tuning_it_goes_on(tmp_path):
    config = replace(CONFIG, int8=False, finetune=ldrf.FinetuneConfig(epochs=2, batch=8))
    whole = ldrf.ship(make(Chain), batches(), tmp_path / "whole", config)

    def kill(event, data):
        if event == "epoch":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ldrf.ship(make(Chain), batches(), tmp_path / "killed", config, on_event=kill)
    seen = []
    again = ldrf.ship(
        make(Chain), batches(), tmp_path / "killed", config, on_event=lambda event, data: seen.append((event, data))
    )
    assert ("step", {"name": "prune", "done": True}) in seen
    assert [data["epoch"] for event, data in seen if event == "epoch"] == [2]
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, again.model.state_dict()[name])


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(LdrfError, match="is not empty and holds no earlier release"):
        ldrf.ship(make(Chain), batches(), tmp_path, CONFIG)
    with pytest.raises(LdrfError, match="is a file"):
        ldrf.ship(make(Chain), batches(), tmp_path / "mine.txt", CONFIG)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_the_model_given_keeps_its_mode_and_weights(shipped):
    model = make(Chain).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    ldrf.ship(model, batches(), shipped.folder, replace(CONFIG, int8=False, finetune=None))
    assert model.training and all(torch.equal(before[n], t) for n, t in model.state_dict().items())


def test_stored_answers_are_those_of_the_file(shipped):
    stored = np.load(shipped.folder / "example.npz")
    assert stored["answer"].shape == (1, 5) and stored["input_0"].shape[0] == 1
    notes = json.loads((shipped.folder / ".steps" / "steps.json").read_text())
    assert {"prune", "measure"} <= set(notes)
