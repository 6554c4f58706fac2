"""Prune the MLPs of a Hugging Face ViT.

python examples/huggingface_vit.py            # ViT-B/16 with its ImageNet weights, which are downloaded
python examples/huggingface_vit.py --quick    # a tiny ViT with random weights
"""

import sys

import torch

import ldrf
from ldrf.cli.vision import import_vision

QUICK = "--quick" in sys.argv
# 'import transformers' does as well, where torchvision and torch were built for each other.
import_vision("torchvision")
from transformers import ViTConfig, ViTForImageClassification  # noqa: E402

TINY = ViTConfig(
    hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=32, patch_size=8
)


def main() -> None:
    torch.manual_seed(0)
    model = ViTForImageClassification(TINY) if QUICK else vit_base()
    side, count = (32, 4) if QUICK else (224, 16)

    # A batch may be a dict, as an image processor gives it: ldrf takes from it what the model's forward takes.
    batches = [{"pixel_values": torch.randn(16, 3, side, side)} for _ in range(count)]
    config = ldrf.PruneConfig(steps=5) if QUICK else None

    result = ldrf.prune(model.eval(), batches, speedup=1.2, config=config)
    print(result)

    # Still a ViTForImageClassification. Load it with ldrf.load: from_pretrained would expect the dense widths.
    logits = result.model(pixel_values=torch.randn(2, 3, side, side)).logits
    assert logits.shape == (2, model.config.num_labels)


def vit_base() -> ViTForImageClassification:
    return ViTForImageClassification.from_pretrained("google/vit-base-patch16-224")


if __name__ == "__main__":
    main()
