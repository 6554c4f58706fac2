"""Prune a torchvision model, one layer left alone on purpose.

python examples/torchvision_model.py            # a ResNet-18 with its ImageNet weights, which are downloaded
python examples/torchvision_model.py --quick    # the same network with random weights, on small random images
"""

import sys

import torch
from torch import Tensor, nn

import ldrf
from ldrf.cli.vision import import_vision

QUICK = "--quick" in sys.argv
# 'import torchvision' does as well, where torchvision and torch were built for each other.
torchvision = import_vision("torchvision")


def calibration_images() -> list[Tensor]:
    """Stands in for your images, prepared as the model wants them: [batch, 3, height, width]."""
    side, count = (32, 2) if QUICK else (224, 16)
    return [torch.randn(16, 3, side, side) for _ in range(count)]


def main() -> None:
    torch.manual_seed(0)
    model: nn.Module = torchvision.models.resnet18(weights=None if QUICK else "DEFAULT").eval()
    config = ldrf.PruneConfig(solver="closed-form", selection="weight", allocation="uniform") if QUICK else None

    # 'ignore' takes names and globs. Neither the outputs nor the inputs of an ignored layer change.
    result = ldrf.prune(model, calibration_images(), speedup=1.5, ignore="layer4.1.*", config=config)
    print(result)

    # Still torchvision's own class, with the same names in its state dict.
    assert type(result.model) is type(model)
    assert result.model.state_dict().keys() == model.state_dict().keys()
    assert result.model(torch.randn(2, 3, 64, 64)).shape == (2, 1000)


if __name__ == "__main__":
    main()
