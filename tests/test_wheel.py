"""The wheel is small and whole: installed elsewhere, it runs without the checkout."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ASSETS = ("cifar10_train.webp", "cifar10_test.webp", "cifar10_labels.json", "vgg9.safetensors")

pytestmark = pytest.mark.slow


def python(*argv: str, cwd: Path, **env: str) -> str:
    done = subprocess.run([sys.executable, *argv], cwd=cwd, env=os.environ | env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    python("-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT), cwd=folder)
    (found,) = folder.glob("ldrf-*.whl")
    return found


def test_the_wheel_is_small_and_whole(wheel):
    assert wheel.stat().st_size < 25 * 2**20
    names = set(zipfile.ZipFile(wheel).namelist())
    assert "ldrf/py.typed" in names
    assert {f"ldrf/data/assets/{name}" for name in ASSETS} <= names
    tracked = {str(path.relative_to(ROOT)) for path in (ROOT / "ldrf").rglob("*") if path.suffix not in ("", ".pyc")}
    assert tracked <= names
    assert not [name for name in names if name.startswith(("tests", "docs", "examples"))]


def test_the_wheel_runs_outside_the_checkout(wheel, tmp_path):
    target, empty = tmp_path / "installed", tmp_path / "empty"
    empty.mkdir()
    python("-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(target), str(wheel), cwd=empty)
    assert "prune" in python("-m", "ldrf", "--help", cwd=empty, PYTHONPATH=str(target))
    code = (
        "import ldrf\n"
        "from ldrf.data.sources import open_data\n"
        "from ldrf.measuring.accuracy import measure_accuracy\n"
        "from ldrf.zoo.pretrained import pretrained_vgg9\n"
        "print(measure_accuracy(pretrained_vgg9(), open_data('sample', 'test').take(50)).top1)\n"
        "print(ldrf.__file__)"
    )
    accuracy, place = python("-c", code, cwd=empty, PYTHONPATH=str(target)).splitlines()
    assert float(accuracy) > 75 and Path(place).is_relative_to(target)
