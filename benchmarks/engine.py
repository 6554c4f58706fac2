"""What the engine reaches without labels and without fine-tuning: one cell per network, kept in ``engine.json``.

``python benchmarks/engine.py --cifar10 FOLDER --shared FOLDER [--cells resnet20-2x ...]``; a cell that is already in
the file is run again only when named. CIFAR-10 cells report the full test set, ImageNet cells all given val images.
"""

import argparse
import json
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

import ldrf
from ldrf.cli.vision import import_vision
from ldrf.data.sources import open_data
from ldrf.measuring.accuracy import measure_accuracy
from ldrf.runtime.allocator import keep_large_blocks
from ldrf.zoo.cifar_resnet import resnet20
from ldrf.zoo.pretrained import pretrained_vgg9

RESULTS = Path(__file__).with_name("engine.json")
PAPER_5X = dict(zip(("0", "3", "7", "10", "14", "17"), (6, 18, 37, 49, 152, 206), strict=True))  # Tab. 1, 5x


def resnet50_v1() -> nn.Module:
    """ResNet-50 as first published: the stride on the first 1x1 of a stage, BatchNorm eps 1e-3."""
    model = import_vision("torchvision").models.resnet50(weights=None)
    for stage in (model.layer2, model.layer3, model.layer4):
        stage[0].conv1.stride, stage[0].conv2.stride = (2, 2), (1, 1)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eps = 1e-3
    return model


def loaded(model: nn.Module, weights: Path) -> nn.Module:
    model.load_state_dict({name: tensor.float() for name, tensor in load_file(weights).items()})
    return model.eval()


@torch.inference_mode()
def dense_pass(model: nn.Module, batches: list[Any]) -> float:
    """Seconds of the dense network on all calibration images."""
    start = time.perf_counter()
    for batch in batches:
        model(batch[0])
    return time.perf_counter() - start


def run_cell(
    model: nn.Module,
    data: str,
    images: int,
    test_images: int | None,
    target: dict[str, Any],
    config: ldrf.PruneConfig,
) -> dict[str, Any]:
    """Prune on ``images`` unlabelled training images and compare with the dense network on the test images."""
    batches = list(open_data(data, "train").take(images, seed=config.seed))
    passes = [dense_pass(model, batches)]
    start = time.perf_counter()
    result = ldrf.prune(model, batches, config=config, **target)
    prune_seconds = time.perf_counter() - start
    passes += [dense_pass(model, batches)]  # before and after, as a machine is not always equally fast
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    del batches
    test = open_data(data, "test").take(test_images, seed=config.seed)
    dense, slim = (measure_accuracy(net, test) for net in (model, result.model))
    return {
        "speedup": round(result.speedup, 4),
        "top1": {"dense": dense.top1, "slim": slim.top1, "drop": round(dense.top1 - slim.top1, 2)},
        "top5": {"dense": dense.top5, "slim": slim.top5, "drop": round(dense.top5 - slim.top5, 2)},
        "test_images": dense.images,
        "calibration_images": images,
        "cost_in_dense_passes": round(prune_seconds / (sum(passes) / len(passes)), 1),
        "peak_rss_gib": round(peak, 2),
        "threads": torch.get_num_threads(),
        **{key: result.as_dict()[key] for key in ("widths", "seed", "config", "seconds", "versions", "history")},
    }


def cells(cifar10: str, shared: Path) -> dict[str, Callable[[], dict[str, Any]]]:
    """Every cell by name; models and data are read only when a cell is run."""
    cifar, imagenet = f"cifar10:{cifar10}", f"imagefolder:{shared / 'data' / 'imagenet-mini'}"
    paper = {f"features.{key}": width for key, width in PAPER_5X.items()}
    base = ldrf.PruneConfig()
    large = ldrf.PruneConfig(chunk=16, steps=120, joint_steps=0)  # a step of all its units takes nine seconds
    # 10,000 images are worth more steps, and 300 of them are enough to judge by.
    longer = ldrf.PruneConfig(steps=100, joint_steps=4000, augment=True, held_out=0.03)
    small_net = shared / "weights" / "resnet20-cifar10.safetensors"
    large_net = shared / "weights" / "resnet50-v1-imagenet.safetensors"
    return {
        "resnet20-2x": lambda: run_cell(loaded(resnet20(), small_net), cifar, 2048, None, {"speedup": 2.0}, base),
        "vgg9-5x-paper-widths": lambda: run_cell(pretrained_vgg9(), cifar, 10_000, None, {"widths": paper}, longer),
        "vgg9-5x": lambda: run_cell(pretrained_vgg9(), cifar, 10_000, None, {"speedup": 5.0}, longer),
        "resnet50-1.73x": lambda: run_cell(
            loaded(resnet50_v1(), large_net), imagenet, 512, 1000, {"speedup": 1.73}, large
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cifar10", required=True, help="folder with CIFAR-10")
    parser.add_argument("--shared", type=Path, required=True, help="folder with weights/ and data/imagenet-mini/")
    parser.add_argument("--cells", nargs="*", default=[], help="cells to run (again); all missing ones by default")
    options = parser.parse_args()
    keep_large_blocks()
    done = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    available = cells(options.cifar10, options.shared)
    for name in options.cells or [n for n in available if n not in done]:
        found = available[name]()
        done[name] = found
        RESULTS.write_text(json.dumps(done, indent=1) + "\n")
        cost = found["cost_in_dense_passes"]
        print(f"{name}: {found['speedup']}x, top-1 {found['top1']}, {cost} dense passes", flush=True)


if __name__ == "__main__":
    main()
