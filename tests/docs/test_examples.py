"""Every example runs as a user would run it, from another folder, and reaches the speedup it asks for."""

import importlib.util
import json
import os
import re
import runpy
import subprocess
import sys
import warnings
from pathlib import Path

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


def run(folder: Path, *argv: str) -> str:
    """What a Python process prints; it must end well and leave nothing behind in its folder."""
    # Nothing is fetched in a test, and one thread is quicker than several that share a core.
    quiet = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "LDRF_QUICK": "1"}
    done = subprocess.run(
        [sys.executable, *argv], cwd=folder, env=os.environ | quiet, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr
    assert list(folder.iterdir()) == []
    return done.stdout


def test_every_example_is_known():
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == SPEEDUPS.keys()


def run_here(folder: Path, path: Path, *argv: str) -> None:
    """The same in this process, which has torch in its memory already."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.chdir(folder)
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setattr(sys, "argv", [str(path), *argv])
        runpy.run_path(str(path), run_name="__main__")
    assert list(folder.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", SPEEDUPS)
def test_an_example_runs(name, tmp_path, capsys):
    if name in NEEDS and importlib.util.find_spec(NEEDS[name]) is None:
        pytest.skip(f"{NEEDS[name]} is not installed")
    path = ROOT / "examples" / f"{name}.py"
    if name == "quickstart":
        told = run(tmp_path, str(path), "--quick")
    else:
        run_here(tmp_path, path, "--quick")
        told = capsys.readouterr().out
    found = re.search(r"([\d.]+)x fewer MACs", told)
    assert found and float(found[1]) >= SPEEDUPS[name]


@pytest.mark.slow
def test_the_notebook_runs(tmp_path):
    notebook = json.loads((ROOT / "examples" / "tour.ipynb").read_text())
    assert notebook["nbformat"] == 4
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    told = run(tmp_path, "-c", "\n".join(cells))
    assert "fewer MACs" in told and "top-1" in told
