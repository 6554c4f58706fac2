"""``example.py`` of a release: runs the file with nothing but the runtime installed, on the example or on a picture."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ldrf.files.writing import replacing, write_whole
from ldrf.inputs import Inputs, main_output
from ldrf.shipping.release import Release, opened

TEMPLATES = Path(__file__).parent / "templates"
SETTINGS = "SETTINGS = {}"  # the line of a template that the settings take the place of


def write_example(release: Release, file: Path) -> None:
    """Write the program, and one image that judged with what the file answers to it."""
    runtime = str(release.config.deployment.runtime)
    names = (runtime if release.is_onnx else "torch", "pictures")
    program = "".join((TEMPLATES / f"{name}.py.txt").read_text() for name in names)
    settings = {"file": file.name, "picture": release.pictures}
    write_whole(release.folder / "example.py", program.replace(SETTINGS, f"SETTINGS = {settings!r}", 1))
    one = release.images.judged[0].map(lambda t: t[:1])
    with replacing(release.folder / "example.npz") as beside, beside.open("wb") as stream:
        np.savez(stream, **_arrays(one), answer=_answer(release, file, one).numpy())


def _arrays(one: Inputs) -> dict[str, Any]:
    return {f"input_{i}": tensor.cpu().numpy() for i, tensor in enumerate(one.tensors())}


def _answer(release: Release, file: Path, one: Inputs) -> Tensor:
    if release.is_onnx:
        return opened(release, file)(one)
    loaded = torch.export.load(file).module()
    with torch.no_grad():
        return main_output(one.call(loaded))
