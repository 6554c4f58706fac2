"""What pruning ResNet-50 at 224 x 224 costs an image and a descent step, in dense passes: for docs/scaling.md.

    python benchmarks/scaling.py --images 8

Processor seconds of one thread, which other work on the machine disturbs little. Three short runs differ in one thing
each, so what they have in common drops out; least squares and error curves are left out, as they do not grow
with the images. Every image gives as many rows as it does among ``--among`` images.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from unittest.mock import patch

import torch

import ldrf
from ldrf.calibration.calibration_set import read_calibration
from ldrf.calibration.network import Network, read_network
from ldrf.calibration.survey import rows_wanted
from ldrf.cli.models import build

CONFIG = ldrf.PruneConfig(allocation="uniform", selection="weight", coupled=False, energy=0.1)


def _unsolved(moments: object, start: torch.Tensor, dampings: Sequence[float], *_: object) -> list[torch.Tensor]:
    """Stands for least squares, and solves nothing."""
    return [start for _ in dampings]


def seconds(network: Network, images: int, steps: int, given: argparse.Namespace) -> float:
    """Processor seconds of pruning a network that is read already, without its closed forms."""
    batches = [torch.randn(images, 3, 224, 224, generator=torch.Generator().manual_seed(0))]
    calibration = read_calibration(network.model, batches, given.chunk, CONFIG.held_out, False)

    def few_rows(columns: int) -> int:
        return max(1, rows_wanted(columns) // given.among) * images

    with (
        patch("ldrf.run.read_network", lambda *_: replace(network, calibration=calibration)),
        patch("ldrf.calibration.survey.rows_wanted", few),
        patch("ldrf.reconstruction.refitting.least_squares_at", lambda moments, start, *_: iter([start])),
    ):
        start = time.process_time()
        ldrf.prune(network.model, [], speedup=1.7, config=replace(CONFIG, steps=steps))
        return time.process_time() - start


def dense_seconds(model: torch.nn.Module, images: int) -> float:
    """Processor seconds of a forward pass of one image."""
    x = torch.randn(images, 3, 224, 224)
    with torch.no_grad():
        model(x)
        start = time.process_time()
        for _ in range(4):
            model(x)
    return (time.process_time() - start) / 4 / images


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=8, help="images of the short runs")
    parser.add_argument("--steps", type=int, default=8, help="descent steps by which two runs differ")
    parser.add_argument("--chunk", type=int, default=4, help="images a step")
    parser.add_argument("--among", type=int, default=512, help="images of the run whose cost is asked for")
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = build("torchvision:resnet50").eval()
    network = read_network(model, [torch.randn(2, 3, 224, 224)], (), CONFIG)
    one = dense_seconds(model, given.chunk)
    base = seconds(network, given.images, 2, given)
    more_images = seconds(network, 2 * given.images, 2, given)
    more_steps = seconds(network, given.images, 2 + given.steps, given)
    found = {
        "dense_seconds_an_image": one,
        "passes_an_image": (more_images - base) / given.images / one,
        "passes_a_step_and_image": (more_steps - base) / (given.steps * given.chunk) / one,
        "again_dense_seconds_an_image": dense_seconds(model, given.chunk),
        "settings": vars(given),
        "torch": torch.__version__,
    }
    print(json.dumps(found, indent=2))
