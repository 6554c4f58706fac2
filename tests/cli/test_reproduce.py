"""``ldrf reproduce``: what it asks for, what it leaves behind, and the whole quick run."""

import json
import re
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from networks import NET

from ldrf.cli import main
from ldrf.cli import reproduce as command
from ldrf.cli.arguments.reproduce import Reproduce
from ldrf.reproduce import page, paper
from ldrf.reproduce.cells import Cell
from ldrf.reproduce.recipe import Recipe, Scale, Section, prune_cell
from ldrf.reproduce.recipes import RECIPES
from ldrf.reproduce.tables import Table, number


def cells(scale: Scale) -> list[Cell]:
    slim = prune_cell("slim", "ldrf", scale, {"widths": {"0": 4}}, solver="closed-form")
    return [
        Cell("dense", "dense", {"test_images": None}),
        slim,
        Cell("wrong", "prune", {**slim.settings, "method": "x"}),
    ]


def sections(found) -> list[Section]:
    rows = tuple((name, number(found.value(name))) for name in ("dense", "slim"))
    return [Section("one", "One table", "Its text.", (Table(("network", "top-1"), rows),))]


@pytest.fixture
def plugin(tmp_path, monkeypatch) -> list[str]:
    """A recipe of three cells, the last of which is refused, on a small network."""
    scale = Scale(images=32, test_images=None, steps=2)
    small = Recipe("vgg9-cifar10", "Small", "vgg9", "cifar10:folder", scale, scale, cells, sections)
    for module in (command, page):
        monkeypatch.setattr(module, "RECIPES", {"vgg9-cifar10": small})
    (tmp_path / "plugin.py").write_text(NET)
    monkeypatch.chdir(tmp_path)
    return ["reproduce", "vgg9-cifar10", "--model", "plugin.py:net", "--data", f"{tmp_path}/plugin.py:data"]


def test_a_run_leaves_results_and_page_and_goes_on(plugin, capsys):
    assert main([*plugin, "--cells", "dense", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["done"] == ["dense"] and first["left"] == ["slim", "wrong"]
    assert main([*plugin, "--minutes", "0"]) == 0
    out = capsys.readouterr().out
    assert "1 of 3 cells done." in out and "Left: slim, wrong." in out

    assert main(plugin) == 0
    out = capsys.readouterr().out
    assert "2 of 3 cells done." in out and "wrong refused (The 'method' must be one of" in out and "dense:" not in out
    text = Path("results/vgg9-cifar10.json").read_text()
    found = json.loads(text)
    assert found["command"] == "ldrf reproduce vgg9-cifar10 --data plugin.py:data --model plugin.py:net"
    assert found["scale"]["images"] == 32 and str(Path.cwd()) not in text
    top1 = found["cells"]["slim"]["outcome"]["top1"]
    made = Path("docs/results.md").read_text()
    assert f"| slim | {top1:.2f} |" in made and "evaluated on 64 test images" in made
    assert "refused (The 'method' must be" in made

    assert main([*plugin, "--work", "elsewhere", "--cells", "slim"]) == 0  # the file of results is enough to go on
    assert "slim:" not in capsys.readouterr().out and not Path("elsewhere").exists()
    assert main([*plugin, "--cells", "slim", "--again"]) == 0
    assert "slim: top-1" in capsys.readouterr().out

    before = Path("results/vgg9-cifar10.json").read_text()
    assert main([*plugin, "--images", "16"]) == 1  # other settings, so what is there would be lost
    assert "has 1 cells of other settings, images or weights, such as 'slim'" in capsys.readouterr().err
    assert Path("results/vgg9-cifar10.json").read_text() == before
    assert main([*plugin, "--images", "16", "--minutes", "0", "--out", "other"]) == 0


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["reproduce", "vgg9-cifar10"], 2, "needs images: add --data cifar10:folder, or --quick"),
        (["reproduce", "nonsense"], 2, ""),
        (["reproduce", "vgg9-cifar10", "--quick", "--images", "0"], 2, "--images must be positive. Got 0 instead"),
        (["reproduce", "resnet20-cifar10", "--data", "sample"], 1, "'resnet20' comes without weights"),
        (["reproduce", "vgg9-cifar10", "--quick", "--cells", "xyz"], 1, "No cell matches 'xyz'"),
    ],
)
def test_wrong_arguments_are_told_before_the_work(argv, code, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(argv) == code
    assert words in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_quick_takes_what_is_bundled_and_keeps_away_from_the_projects_results():
    asked = Reproduce("resnet20-cifar10", quick=True)
    recipe = RECIPES["resnet20-cifar10"]
    assert command.model_and_data(asked, recipe) == ("vgg9", "sample")
    assert command.scale_of(asked, recipe) == recipe.quick
    own = Reproduce("resnet20-cifar10", quick=True, weights="w.safetensors", iterations=7)
    assert command.model_and_data(own, recipe) == ("resnet20", "sample")
    assert command.scale_of(own, recipe).iterations == 7
    assert command.command_line(own) == "ldrf reproduce resnet20-cifar10 --weights FILE --quick --iterations 7"
    full = Reproduce("vgg9-cifar10", data="cifar10:/some/where")
    assert command.command_line(full) == "ldrf reproduce vgg9-cifar10 --data cifar10:FOLDER"


# VGG-9 with an eighth of its neurons: the bundled one takes minutes, most of them in matrices of 4096 columns.
NARROW = """
import torch
from torch import nn
from ldrf.zoo.vgg9 import VGG9

def net():
    torch.manual_seed(0)
    model, inputs = VGG9(), 3
    for i, part in enumerate(model.features):
        if isinstance(part, nn.Conv2d):
            width = part.out_channels // 8
            model.features[i] = nn.Conv2d(inputs, width, 3, padding=1, bias=False)
            model.features[i + 1], inputs = nn.BatchNorm2d(width), width
    for i, (reads, gives) in {1: (512, 64), 3: (64, 64), 5: (64, 10)}.items():
        model.classifier[i] = nn.Linear(reads, gives)
    return model.eval()
"""


@pytest.fixture
def narrow(tmp_path, monkeypatch) -> list[str]:
    """Arguments for a quick run of such a network, with widths of the paper that fit it."""
    monkeypatch.setattr(
        paper, "VGG9_WIDTHS", {s: tuple(w // 8 or 1 for w in ws) for s, ws in paper.VGG9_WIDTHS.items()}
    )
    monkeypatch.chdir(tmp_path)
    Path("narrow.py").write_text(NARROW)
    small = ["--images", "16", "--test-images", "32", "--steps", "1", "--iterations", "1", "--json"]
    return ["--quick", "--model", "narrow.py:net", *small]


@pytest.mark.slow
def test_the_whole_quick_run(narrow, tmp_path, monkeypatch, capsys):
    recipe = RECIPES["vgg9-cifar10"]
    hasty = replace(recipe, quick=replace(recipe.quick, timing=0.02))  # the clock is not the point here
    monkeypatch.setitem(RECIPES, "vgg9-cifar10", hasty)
    assert main(["reproduce", "vgg9-cifar10", *narrow]) == 0
    found = json.loads(capsys.readouterr().out)
    planned = RECIPES["vgg9-cifar10"].cells(RECIPES["vgg9-cifar10"].quick)
    missing = {c.name for c in planned if c.settings.get("method") == "aimet" and find_spec("aimet_torch") is None}
    assert set(found["done"]) == {cell.name for cell in planned} - missing and not found["left"]
    assert set(found["refused"]) == missing and all("ldrf[aimet]" in told for told in found["refused"].values())
    made = (tmp_path / "runs" / "quick" / "docs" / "results.md").read_text()
    assert "A quick run with `narrow.py:net`" in made and "Not run yet" not in made
    figures = re.findall(r"\]\((figures/.*?)\)", made)
    assert len(figures) >= 4
    for figure in figures:
        assert (tmp_path / "runs" / "quick" / "docs" / figure).read_text().lstrip().startswith("<?xml")


def test_a_quick_run_is_one_of_the_bundled_network(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    argv = ["reproduce", "vgg9-cifar10", "--quick", "--images", "16", "--test-images", "32", "--cells", "dense"]
    assert main([*argv, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["done"] == ["dense"]
    assert "A quick run with `vgg9`" in (tmp_path / "runs" / "quick" / "docs" / "results.md").read_text()
    found = json.loads((tmp_path / "runs" / "quick" / "results" / "vgg9-cifar10.json").read_text())
    assert found["cells"]["dense"]["outcome"]["top1"] > 75


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in RECIPES if name != "vgg9-cifar10"])
def test_one_cell_of_every_recipe_runs(name, narrow, capsys):
    first = next(c.name for c in RECIPES[name].cells(RECIPES[name].quick) if c.name != "dense")
    assert main(["reproduce", name, *narrow, "--cells", first]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["done"] == [first] and not found["refused"]
