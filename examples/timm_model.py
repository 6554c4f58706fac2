"""Prune a timm model: an EfficientNet, whose blocks have depthwise convolutions and squeeze-and-excitation.

python examples/timm_model.py            # efficientnet_b0 with its ImageNet weights, which are downloaded
python examples/timm_model.py --quick    # a tiny one with random weights, on small random images
"""

import sys

import torch

import ldrf
from ldrf.cli.vision import import_vision

QUICK = "--quick" in sys.argv
# 'import timm' does as well, where torchvision and torch were built for each other.
timm = import_vision("timm")


def main() -> None:
    torch.manual_seed(0)
    name = "test_efficientnet" if QUICK else "efficientnet_b0"
    model = timm.create_model(name, pretrained=not QUICK).eval()
    side, count = (64, 2) if QUICK else (224, 16)
    batches = [torch.randn(16, 3, side, side) for _ in range(count)]  # stands in for your images
    config = ldrf.PruneConfig(solver="closed-form", allocation="uniform") if QUICK else None

    result = ldrf.prune(model, batches, speedup=1.3, config=config)
    print(result.headline())

    # A depthwise convolution has no width of its own: it follows the layer before it.
    print("cut:", ", ".join(f"{name} {result.full_widths[name]} -> {width}" for name, width in result.widths.items()))
    for layer in result.skipped:
        print(f"left alone: {layer.name}: {layer.reason}")


if __name__ == "__main__":
    main()
