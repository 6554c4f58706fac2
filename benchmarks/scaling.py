"""What pruning ResNet-50 at 224 x 224 costs an image and a descent step, in dense passes: for docs/scaling.md.

    python benchmarks/scaling.py --images 8

Processor seconds of one thread, which other work on the machine disturbs little. Three short runs differ in one thing
each, so what they have in common (tracing) drops out; least squares and error curves are left out, as they do not grow
with the images. Every image gives as many rows as it does among ``--among`` images.
"""

import argparse
import json
import time
from unittest.mock import patch

import torch

import ldrf
from ldrf.calibration import rows_wanted
from ldrf.cli.models import build


def seconds(model: torch.nn.Module, images: int, steps: int, among: int) -> float:
    """Processor seconds of pruning without its closed forms."""
    config = ldrf.PruneConfig(
        steps=steps, chunk=images_a_chunk, allocation="uniform", selection="weight", coupled=False, energy=0.1
    )
    batches = [torch.randn(images, 3, 224, 224, generator=torch.Generator().manual_seed(0))]
    few = lambda columns: max(1, rows_wanted(columns) // among) * images  # noqa: E731
    start = time.process_time()
    with (
        patch("ldrf.calibration.rows_wanted", few),
        patch("ldrf.reconstruction.least_squares", lambda moments, given, *_: given),
    ):
        ldrf.prune(model, batches, speedup=1.7, config=config)
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
    parser.add_argument("--images", type=int, default=8, help="images of the short runs, at least 4")
    parser.add_argument("--among", type=int, default=512, help="images of the run whose cost is asked for")
    given = parser.parse_args()
    torch.set_num_threads(1)
    images_a_chunk = given.images // 4
    torch.manual_seed(0)
    network = build("torchvision:resnet50").eval()
    one = dense_seconds(network, images_a_chunk)
    base = seconds(network, given.images, 2, given.among)
    more_images = seconds(network, 3 * given.images, 2, given.among)
    more_steps = seconds(network, given.images, 22, given.among)
    found = {
        "dense_seconds_an_image": one,
        "passes_an_image": (more_images - base) / (2 * given.images) / one,
        "passes_a_step_and_image": (more_steps - base) / (20 * images_a_chunk) / one,
        "again_dense_seconds_an_image": dense_seconds(network, images_a_chunk),
        "images": given.images,
        "among": given.among,
        "torch": torch.__version__,
    }
    print(json.dumps(found, indent=2))
