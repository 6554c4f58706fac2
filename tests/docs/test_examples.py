"""Every example runs from another folder, and reaches the speedup it asks for."""

import importlib.util
import json
import re
import runpy
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SPEEDUPS = {
    "quickstart": 3.0,
    "torchvision_model": 1.5,
    "timm_model": 1.3,
    "huggingface_vit": 1.2,
    "own_training_loop": 2.0,
}
NEEDS = {"torchvision_model": "torchvision", "timm_model": "timm", "huggingface_vit": "transformers"}


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[None]:
    """In an empty folder, in which nothing may be left; nothing is fetched in a test."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.chdir(tmp_path)
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("LDRF_QUICK", "1")
        patch.setattr(sys, "argv", ["example", "--quick"])
        yield
    assert list(tmp_path.iterdir()) == []


def test_every_example_is_known():
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == SPEEDUPS.keys()


@pytest.mark.slow
@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("name", SPEEDUPS)
def test_an_example_runs(name, capsys):
    """In this process, which has torch in its memory already: new processes are tests/saving/test_journal.py's."""
    if name in NEEDS and importlib.util.find_spec(NEEDS[name]) is None:
        pytest.skip(f"{NEEDS[name]} is not installed")
    runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")
    found = re.search(r"([\d.]+)x fewer MACs", capsys.readouterr().out)
    assert found and float(found[1]) >= SPEEDUPS[name]


@pytest.mark.slow
@pytest.mark.usefixtures("elsewhere")
def test_the_notebook_runs(capsys):
    notebook = json.loads((ROOT / "examples" / "tour.ipynb").read_text())
    assert notebook["nbformat"] == 4
    shared: dict[str, Any] = {"__name__": "__main__"}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), shared)
    told = capsys.readouterr().out
    assert "fewer MACs" in told and "top-1" in told
