"""Images that commands run a model on: as described by a result folder, or of the data named."""

import json
from pathlib import Path

import pytest
import torch
from fake_library import FakeResult

import ldrf
from ldrf.cli import main
from ldrf.cli.arguments.base import is_result
from ldrf.cli.images import TIMED_IMAGES, open_example, open_test, timed_example
from ldrf.errors import LdrfError
from ldrf.files.record import sealed
from ldrf.inputs import Inputs

ARCHITECTURE = ("--architecture", "plugin.py:net")


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


def test_an_example_has_the_shapes_of_the_folder_or_the_images_of_the_data(here):
    assert is_result("slim") and not is_result("vgg9") and not is_result("plugin.py:net")
    net = torch.nn.Identity()
    made_up = open_example("slim", net, None, 5)
    real = open_example("slim", net, "plugin.py:data", 5)
    assert made_up.args[0].shape == real.args[0].shape == (5, 3, 8, 8)
    assert not torch.equal(made_up.args[0], real.args[0])


def test_test_images_are_left_out_only_where_they_may_be(here):
    labelled = open_test("plugin.py:data", 10)
    assert labelled is not None and sum(len(images) for images, _ in labelled) == 10
    assert open_test("plugin.py:data", 0) is None
    assert open_test("nowhere", None) is None
    with pytest.raises(LdrfError, match="Unknown data 'nowhere'"):
        open_test("nowhere", 10)


def test_networks_are_timed_on_a_whole_batch_where_its_size_is_fixed(monkeypatch):
    net, batch = torch.nn.Identity(), torch.zeros(TIMED_IMAGES + 4, 2)
    assert timed_example(net, [batch], FakeResult(net)).rows == TIMED_IMAGES  # pyright: ignore[reportArgumentType]
    monkeypatch.setattr(FakeResult, "example", Inputs((torch.zeros(40, 2),), {}, fixed=True))
    assert timed_example(net, [batch], FakeResult(net)).rows == 40  # pyright: ignore[reportArgumentType]
