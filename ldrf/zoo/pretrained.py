"""The weights that come with the package: a VGG-9 trained by ``ldrf train vgg9`` on CIFAR-10."""

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file

from ldrf.errors import LdrfError
from ldrf.zoo.vgg9 import VGG9

WEIGHTS = Path(__file__).parents[1] / "data" / "assets" / "vgg9.safetensors"


def pretrained_vgg9(path: Path = WEIGHTS) -> VGG9:
    """The bundled VGG-9 of the paper's CIFAR-10 experiments, in float32 and evaluation mode."""
    model = VGG9()
    try:
        model.load_state_dict(load_file(path))
    except (OSError, SafetensorError, RuntimeError) as problem:
        raise LdrfError(f"The bundled VGG-9 weights '{path}' are missing or damaged: install ldrf again.") from problem
    return model.eval()
