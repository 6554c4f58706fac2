"""From cells to the page: every recipe folds whole, half and empty results, and always to the same bytes."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ldrf.errors import LdrfError
from ldrf.reproduce import paper
from ldrf.reproduce.cells import Cell
from ldrf.reproduce.figures import LineChart, Series, draw
from ldrf.reproduce.maps import pack
from ldrf.reproduce.page import write_page
from ldrf.reproduce.recipe import Recipe
from ldrf.reproduce.recipes import RECIPES
from ldrf.reproduce.results import Results, read, write
from ldrf.reproduce.rivals import COMPARED, EXTERNAL
from ldrf.reproduce.tables import Table, compared, signed, spread

LAYERS = {**{v: 9 for v in paper.VGG9_LAYERS.values()}, **{v: 9 for v in paper.VGG16_LAYERS.values()}}


def outcome(cell: Cell, top1: float) -> dict[str, Any]:
    """Figures of the right form, such as a measurement leaves them."""
    costs = {"macs": 40_000_000, "dense_macs": 200_000_000, "parameters": 1_000_000}
    scores = {"top1": top1, "top5": top1 + 5, "test_images": 2000}
    trial = {"energy": 0.5, "ranks": LAYERS, "before": 0.4, "after": 0.9, "dense": 0.91}
    maps = {"image": pack(torch.rand(3, 8, 8)), "dense": pack(torch.rand(64, 8, 8)), "slim": pack(torch.rand(6, 8, 8))}
    return {
        "dense": lambda: {**costs, **scores, "top1": 90.0, "top5": 99.0},
        "prune": lambda: {**costs, **scores, "sparsity": {n: 50.0 for n in LAYERS}, "widths": LAYERS},
        "tune": lambda: {**costs, **scores, "curve": [[4, 0.5, 80.0], [8, 0.4, 85.0]], "start": 70.0, "watched": 2000},
        "time": lambda: {**costs, "ms": {"dense": 30.0, "slim": 10.0}, "threads": 2},
        "energy": lambda: {"energy": 0.5, "ranks": LAYERS, "recovered": True, "trials": [trial]},
        "ranks": lambda: {"energy": 0.55, "ranks": LAYERS},
        "maps": lambda: maps,
    }[cell.kind]()


def results(recipe: Recipe, share: float = 1.0, top1: float = 85.0, quick: bool = False) -> Results:
    """The results of a recipe of which a share of the cells is done."""
    torch.manual_seed(0)
    scale = recipe.quick if quick else recipe.full
    cells = recipe.cells(scale)
    done = cells[: round(share * len(cells))]
    records = {
        cell.name: {
            "kind": cell.kind,
            "settings": cell.settings,
            "outcome": outcome(cell, top1),
            "seconds": 60.0,
            "versions": {"ldrf": "1", "torch": "2"},
        }
        for cell in done
    }
    left = tuple(cell.name for cell in cells[len(done) :])
    return Results(recipe.name, f"ldrf reproduce {recipe.name}", "net", "images", quick, scale, records, left, {})


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_cells_have_names_of_their_own_and_follow_their_sources(recipe):
    cells = recipe.cells(recipe.full)
    names = [cell.name for cell in cells]
    assert len(set(names)) == len(names) and len({cell.key("s") for cell in cells}) == len(cells)
    for cell in cells:
        assert cell.source is None or names.index(cell.source.name) < names.index(cell.name), cell.name
        assert cell.settings.get("method", "ldrf") in COMPARED
        if cell.settings.get("method") in EXTERNAL:
            assert cell.source is not None  # whose MACs are met
    assert names[0] == "dense" and names[1].startswith(("ldrf", "ranks"))


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_a_page_is_made_of_whatever_is_done(recipe, share, tmp_path):
    write(results(recipe, share), tmp_path / "results")
    written = write_page(tmp_path / "results", tmp_path / "docs")
    page = (tmp_path / "docs" / "results.md").read_text()
    assert f"## {recipe.title}" in page and ("Not run yet: " in page) is (share < 1)
    linked = {tmp_path / "docs" / target for target in re.findall(r"\]\((figures/.*?)\)", page)}
    assert linked == {path for path in written if path.suffix == ".svg"} == set(tmp_path.glob("docs/figures/*"))
    assert bool(linked) is (share > 0)
    for block in page.split("\n\n"):
        rows = [line for line in block.splitlines() if line.startswith("|")]
        assert len({row.count(" | ") for row in rows}) <= 1 and "None" not in block and "nan" not in block


@pytest.mark.slow
def test_the_papers_number_ours_and_the_difference_stand_in_one_row(tmp_path):
    write(results(RECIPES["vgg9-cifar10"]), tmp_path)
    page = write_page(tmp_path, tmp_path / "docs")[0].read_text()
    for row in (
        "| Top-k | 2.61 | 5.00 ± 0.00 | +2.39 | 3 |",
        "| 5x, He et al. 2017 | 10.00 | 5.00 | -5.00 | 3.60 | 5.00 | +1.40 |",
        "| 2x, LDRF | – | 5.00 | – | 0.00 | 5.00 | +5.00 |",
        "| 5x | 0.26 | 1.00 | +0.74 | 0.39 | 1.00 | +0.61 |",
        "| CONV1_1 | 64 | 6 | 9 | +3 | 9 | +3 |",
        "| 3x, CONV2_2 | 98 | 61.1 | 50.0 | -11.1 |",
        "| 4x | 4.00 | 5.00 | +1.00 | 40.0 | 1.00 |",
        "| 5x | 5.00 | 3.00 | -2.00 | 30.00 | 10.00 |",
        "| Taylor (Molchanov 2017) † | – | 5.00 | – | 85.00 | 5.00x |",
    ):
        assert row in page, row
    assert "1,000 iterations of 100 images; the paper: 10,000" in page


@pytest.mark.parametrize("name", RECIPES)
def test_a_quick_run_makes_every_table_and_figure(name, tmp_path):
    whole, quick = (RECIPES[name].sections(results(RECIPES[name], quick=q).outcomes()) for q in (False, True))
    for mine, full in zip(quick, whole, strict=True):
        assert [f.name for f in mine.figures] == [f.name for f in full.figures]
        assert [t.heads for t in mine.tables if t.rows] == [t.heads for t in full.tables if t.rows]
    told = {cell.name for cell in RECIPES[name].cells(RECIPES[name].quick)}
    assert told <= {cell.name for cell in RECIPES[name].cells(RECIPES[name].full)}


@pytest.mark.slow
def test_the_page_says_what_a_quick_run_leaves_out(tmp_path):
    write(results(RECIPES["vgg9-cifar10"], quick=True), tmp_path)
    page = write_page(tmp_path, tmp_path / "docs")[0].read_text()
    assert "A quick run with `net`" in page and "Of the speed-ups only the lowest and the highest." in page
    assert "| 2x, LDRF | – | 5.00 |" in page and "| 3x, LDRF | – | – |" in page and "| 5x, LDRF | 2.60 | 5.00 |" in page
    write(results(RECIPES["vgg9-cifar10"]), tmp_path)
    assert "quick run" not in write_page(tmp_path, tmp_path / "docs")[0].read_text()


@pytest.mark.slow
def test_the_same_results_give_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        write(results(RECIPES["vgg9-cifar10"]), tmp_path / name)
        write_page(tmp_path / name, tmp_path / name / "docs")
    files = [sorted(p.relative_to(tmp_path / n) for p in (tmp_path / n).rglob("*.*")) for n in ("one", "two")]
    assert files[0] == files[1] and len(files[0]) == 6
    for path in files[0]:
        assert (tmp_path / "one" / path).read_bytes() == (tmp_path / "two" / path).read_bytes(), path
    assert b"date" not in (tmp_path / "one" / "docs" / "figures" / "vgg9-fig5.svg").read_bytes().lower()


@pytest.mark.slow
def test_notes_are_taken_in(tmp_path):
    write(results(RECIPES["vgg9-cifar10"]), tmp_path)
    (tmp_path / "notes.toml").write_text('[vgg9-cifar10]\ntab2 = "Fewer images."\nfig6 = ""\n')
    page = write_page(tmp_path, tmp_path / "docs")[0].read_text()
    assert page.count("**Why we differ.**") == 1 and "**Why we differ.** Fewer images." in page
    (tmp_path / "notes.toml").write_text("half [")
    with pytest.raises(LdrfError, match="not readable TOML"):
        write_page(tmp_path, tmp_path / "docs")


def test_the_projects_notes_name_sections_that_there_are():
    import tomllib

    path = Path(__file__).parents[2] / "results" / "notes.toml"
    if not path.is_file():
        pytest.skip("only in the repository")
    notes = tomllib.loads(path.read_text())
    for name, found in notes.items():
        assert set(found) <= {section.key for section in RECIPES[name].sections(results(RECIPES[name]).outcomes())}


def test_results_come_back_as_they_were(tmp_path):
    before = results(RECIPES["resnet20-cifar10"], 0.5)
    path = write(before, tmp_path)
    assert read(path) == before and read(path).versions == ["ldrf 1", "torch 2"]
    path.write_text("{}")
    with pytest.raises(LdrfError, match="is not a file of results"):
        read(path)


def test_the_page_names_the_commits_that_cells_tell(tmp_path):
    some = results(RECIPES["resnet20-cifar10"], 0.5)
    assert some.commits == []
    dense = {**some.cells["dense"], "commit": "abc1234"}
    write(replace(some, cells={**some.cells, "dense": dense}), tmp_path / "results")
    write_page(tmp_path / "results", tmp_path / "docs")
    assert "made at abc1234." in (tmp_path / "docs" / "results.md").read_text()


def test_numbers_are_written_alike():
    assert compared(2.61, 2.6) == ("2.61", "2.60", "-0.01") and compared(None, 1.0) == ("–", "1.00", "–")
    assert compared(1, 0.9999) == ("1.00", "1.00", "0.00") and signed(None) == "–"
    assert spread([1.0, 2.0, 3.0]) == "2.00 ± 1.00" and spread([1.0]) == "1.00" and spread([]) == "–"
    assert Table(("a", "b"), (("x", "1"),)).markdown() == "| a | b |\n| --- | ---: |\n| x | 1 |"


def test_a_figure_is_an_svg_without_leftovers(tmp_path):
    chart = LineChart("one", "caption", "x", "y", (Series("line", ((1, 2), (2, 3)), "#222222"),))
    draw(chart, tmp_path / "figures" / "one.svg")
    assert (tmp_path / "figures" / "one.svg").read_text().lstrip().startswith("<?xml")
    assert [p.name for p in (tmp_path / "figures").iterdir()] == ["one.svg"]
