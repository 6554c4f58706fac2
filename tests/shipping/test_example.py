"""The program of a release reads pictures without any library for it."""

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ldrf.shipping.example import TEMPLATES


@pytest.fixture(scope="module")
def program():
    """The names that the picture part of the program defines."""
    names = {"SETTINGS": {"picture": {"resize": 16, "crop": 12, "mean": [0.5] * 3, "std": [0.25] * 3}}, "np": np}
    head = (TEMPLATES / "onnxruntime.py.txt").read_text().replace("import onnxruntime", "").replace("SETTINGS = {}", "")
    text = head.replace("HERE = Path(__file__).resolve().parent", "")
    exec(text + (TEMPLATES / "pictures.py.txt").read_text(), names)
    return names


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA"])
def test_png_is_read_as_pillow_reads_it(program, tmp_path, mode):
    wave = np.add.outer(np.arange(21), np.arange(33)) * 5  # smooth, so that all ways of filtering come up
    noise = np.random.default_rng(0).integers(0, 60, (21, 33, 4))
    picture = Image.fromarray((wave[..., None] + noise).astype(np.uint8), "RGBA").convert(mode)
    path = tmp_path / "picture.png"
    picture.save(path)
    wanted = np.array(picture.convert("RGB")) if mode != "RGBA" else np.array(picture)[:, :, :3]
    assert np.array_equal(program["read_picture"](str(path)), wanted)


def test_every_filter_is_undone(program):
    line, above = np.random.default_rng(1).integers(0, 256, (2, 12)).astype(np.uint8)
    plain = np.random.default_rng(2).integers(0, 256, 12).astype(np.uint8)
    left = np.concatenate([np.zeros(3, np.uint8), plain[:-3]])
    corner = np.concatenate([np.zeros(3, np.uint8), above[:-3]])
    p = left.astype(int) + above - corner
    gaps = np.stack([abs(p - left), abs(p - above), abs(p - corner)])
    paeth = np.choose(gaps.argmin(0), [left, above, corner])
    guesses = [0 * plain, left, above, ((left.astype(int) + above) // 2).astype(np.uint8), paeth]
    for kind, guess in enumerate(guesses):
        assert np.array_equal(program["unfiltered"](kind, plain - guess.astype(np.uint8), above, 3), plain)
    assert line.shape == above.shape


def test_a_picture_is_resized_cut_and_normalised(program, tmp_path):
    Image.new("RGB", (40, 20), (128, 64, 0)).save(tmp_path / "flat.png")
    made = program["read_input"](str(tmp_path / "flat.png"))
    assert made.shape == (1, 3, 12, 12) and made.dtype == np.float32
    assert np.allclose(made[0, :, 5, 5], (np.array([128, 64, 0]) / 255 - 0.5) / 0.25, atol=1e-6)


@pytest.mark.parametrize("name", ["onnxruntime", "openvino", "torch"])
def test_nothing_but_the_runtime_is_imported(name):
    text = "".join((TEMPLATES / f"{part}.py.txt").read_text() for part in (name, "pictures"))
    compile(text, name, "exec")
    imported = set(re.findall(r"^\s*(?:import|from) (\w+)", text, re.MULTILINE))
    assert imported - {"struct", "sys", "zlib", "pathlib", "numpy"} == {name, "PIL"}
    assert Path(TEMPLATES / f"{name}.py.txt").read_text().count("SETTINGS = {}") == 1
