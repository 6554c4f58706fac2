"""Whether memory stays flat as images grow and time linear as depth grows: kept in ``memory.json``.

``python benchmarks/memory.py --shared FOLDER [--images 256 512 1000] [--steps 20] [--memory 2GiB] [--chunk 32]``
prunes ResNet-50 at 224 x 224 on so many images, and a chain of residual blocks of 16 x 16 maps in two depths. Every
cell is a process of its own, so that its peak is its own; ``--only chain`` or ``--only resnet50`` runs one of the two.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from engine import loaded, resnet50_v1
from torch import Tensor, nn

import ldrf
from ldrf.data.sources import open_data
from ldrf.runtime.allocator import keep_large_blocks

RESULTS = Path(__file__).with_name("memory.json")
DEPTHS = (16, 32)
DEFAULTS = ldrf.PruneConfig()
FLAT, LINEAR = 1.2, 2.2  # what is promised: peak of the most images to that of the fewest, time of twice the depth


class Block(nn.Module):
    """Two 3 x 3 convolutions beside a shortcut."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + 0.3 * self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x))))))


def chain(depth: int, width: int = 16) -> nn.Module:
    """A stem, ``depth`` blocks and a linear layer, random weights."""
    torch.manual_seed(0)
    blocks = [Block(width) for _ in range(depth)]
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))
    return nn.Sequential(nn.Conv2d(3, width, 3, padding=1), *blocks, *head).eval()


def measured(model: nn.Module, batches: Iterable[Any], target: dict[str, Any], config: ldrf.PruneConfig) -> dict:
    """Cost of pruning: seconds on the clock and of the processor, in dense passes too, and the peak of memory."""
    dense, images = 0.0, 0
    with torch.inference_mode():
        for batch in batches:
            start = time.process_time()
            model(batch[0])
            dense, images = dense + time.process_time() - start, images + len(batch[0])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    clock, processor = time.perf_counter(), time.process_time()
    result = ldrf.prune(model, batches, config=config, **target)
    processor = time.process_time() - processor
    return {
        "images": images,
        "seconds": round(time.perf_counter() - clock, 1),
        "processor_seconds": round(processor, 1),
        "dense_passes": round(processor / dense, 1),
        "peak_rss_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 3),
        "rss_before_gib": round(before / 2**20, 3),
        "stages": result.seconds,
        "speedup": round(result.speedup, 3),
    }


def run_chain(depth: int, images: int, steps: int) -> dict:
    generator = torch.Generator().manual_seed(1)
    batches = [(torch.randn(32, 3, 16, 16, generator=generator),) for _ in range(images // 32)]
    config = ldrf.PruneConfig(steps=steps, chunk=32)
    ldrf.prune(chain(1), batches[:1], speedup=1.1, config=config)  # imports and first calls are no matter of depth
    return measured(chain(depth), batches, {"speedup": 1.5}, config)


def run_resnet50(shared: Path, images: int, options: argparse.Namespace) -> dict:
    model = loaded(resnet50_v1(), shared / "weights" / "resnet50-v1-imagenet.safetensors")
    batches = open_data(f"imagefolder:{shared / 'data' / 'imagenet-mini'}", "train").take(images).sized(options.chunk)  # pyright: ignore
    config = ldrf.PruneConfig(steps=options.steps, chunk=options.chunk, memory=options.memory)
    return measured(model, batches, {"speedup": 1.73}, config)


def in_a_process(options: argparse.Namespace, *cell: str) -> dict:
    """The outcome of one cell, run alone."""
    argv = [sys.executable, __file__, "--cell", *cell, "--steps", str(options.steps), "--memory", options.memory]
    argv += ["--chunk", str(options.chunk)]
    done = subprocess.run([*argv, "--shared", str(options.shared)], stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    print(" ".join(cell), found, flush=True)
    return found


def summary(kind: str, cells: dict[str, dict], options: argparse.Namespace) -> dict[str, Any]:
    """The cells with what was promised of them."""
    first, last = cells[min(cells, key=int)], cells[max(cells, key=int)]
    told: dict[str, Any] = {"steps": options.steps, "threads": torch.get_num_threads(), "cells": cells}
    if kind == "chain":
        ratio = last["processor_seconds"] / first["processor_seconds"]
        return told | {"time_ratio": round(ratio, 3), "at_most": LINEAR}
    peak, time_ = (last[key] / first[key] for key in ("peak_rss_gib", "processor_seconds"))
    images = last["images"] / first["images"]
    return told | {
        "memory": options.memory,
        "chunk": options.chunk,
        "peak_ratio": round(peak, 3),
        "at_most": FLAT,
        "images_ratio": round(images, 2),
        "time_ratio": round(time_, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, default=Path(), help="folder with weights/ and data/imagenet-mini/")
    parser.add_argument("--images", type=int, nargs="+", default=[256, 512, 1000], help="of ResNet-50's cells")
    parser.add_argument("--steps", type=int, default=20, help="descent steps a unit")
    parser.add_argument("--memory", default="2GiB", help="budget of the activation store, of ResNet-50's cells")
    parser.add_argument("--chunk", type=int, default=DEFAULTS.chunk, help="images at a time, of ResNet-50's cells")
    parser.add_argument("--only", choices=["chain", "resnet50"])
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--cell", nargs=2, metavar=("KIND", "SIZE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cell:
        keep_large_blocks()
        kind, size = options.cell[0], int(options.cell[1])
        cell = run_chain(size, 256, options.steps) if kind == "chain" else None
        print(json.dumps(cell or run_resnet50(options.shared, size, options)))
        return
    done = json.loads(options.out.read_text()) if options.out.exists() else {}
    for kind, sizes in (("chain", DEPTHS), ("resnet50", options.images)):
        if options.only in (None, kind):
            cells = {str(size): in_a_process(options, kind, str(size)) for size in sizes}
            done[kind] = summary(kind, cells, options)
            options.out.write_text(json.dumps(done, indent=1) + "\n")


if __name__ == "__main__":
    main()
