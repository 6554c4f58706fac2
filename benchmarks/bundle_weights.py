"""Make the bundled VGG-9 weights from a training: ``python benchmarks/bundle_weights.py runs/vgg9/last.pt``."""

import argparse
from pathlib import Path

import torch

from ldrf.data.sample import load_sample
from ldrf.zoo.pretrained import WEIGHTS, pretrained_vgg9
from ldrf.zoo.training import evaluate, save_weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path, help="last.pt as 'ldrf train' leaves it")
    options = parser.parse_args()
    state = torch.load(options.checkpoint, weights_only=True, map_location="cpu")
    save_weights(state["model"], WEIGHTS)
    accuracy = evaluate(pretrained_vgg9(), load_sample()[1])
    print(
        f"{WEIGHTS.name}: {WEIGHTS.stat().st_size / 2**20:.1f} MiB, epoch {state['epoch']}, "
        f"{accuracy:.2f} % on the sample's test images"
    )


if __name__ == "__main__":
    main()
