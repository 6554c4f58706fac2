"""What widths in multiples cost in accuracy and gain on the clock, at the same MACs; kept in ``multiples.json``.

``python benchmarks/multiples.py prune CELL --cifar10 FOLDER --imagenet FOLDER --models FOLDER`` prunes with any width
and with multiples of eight and notes the accuracy; ``... time CELL --models FOLDER`` times what it left in ``--models``
against the dense network, in turns, in one process that does nothing else. Neither tunes anything.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

import ldrf
from ldrf.cli.vision import import_vision
from ldrf.data.sources import open_data
from ldrf.deployment.onnx_export import onnx_runner
from ldrf.inputs import Inputs
from ldrf.measuring.accuracy import measure_accuracy
from ldrf.measuring.timing import take_turns
from ldrf.runtime.allocator import keep_large_blocks
from ldrf.saving.export import write_onnx
from ldrf.zoo.cifar_resnet import resnet20
from ldrf.zoo.pretrained import pretrained_vgg9

RESULTS = Path(__file__).with_name("multiples.json")
MULTIPLES = (1, 8)


@dataclass(frozen=True)
class Cell:
    """A network, its weights file in ``--weights`` (none where it is bundled), its data, and how it is pruned."""

    make: Callable[[], nn.Module]
    weights: str | None
    data: str
    images: int
    speedup: float
    config: ldrf.PruneConfig
    side: int


def mobilenet_v2() -> nn.Module:
    return import_vision("torchvision").models.mobilenet_v2(weights=None)


CELLS = {
    "vgg9-3x": Cell(pretrained_vgg9, None, "cifar10", 2000, 3.0, ldrf.PruneConfig(steps=50, joint_steps=250), 32),
    "resnet20-2x": Cell(resnet20, "resnet20-cifar10.safetensors", "cifar10", 2048, 2.0, ldrf.PruneConfig(), 32),
    "mobilenet_v2-1.5x": Cell(
        mobilenet_v2, "mobilenet_v2.pth", "imagenet", 512, 1.5, ldrf.PruneConfig(solver="closed-form"), 224
    ),
}


def dense_model(cell: Cell, weights: Path) -> nn.Module:
    model = cell.make()
    if cell.weights:
        path = weights / cell.weights
        state = load_file(path) if path.suffix == ".safetensors" else torch.load(path, weights_only=True)
        model.load_state_dict(
            {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in state.items()}
        )
    return model.eval()


def prune(cell: Cell, args: argparse.Namespace) -> dict[str, Any]:
    """Accuracy of the dense network and of one slim network for each multiple, which is kept in a folder."""
    model = dense_model(cell, args.weights)
    data = f"cifar10:{args.cifar10}" if cell.data == "cifar10" else f"imagefolder:{args.imagenet}"
    test = open_data(data, "test")
    found: dict[str, Any] = {"dense": measure_accuracy(model, test).top1, "images": cell.images}
    for multiple in MULTIPLES:
        config = ldrf.PruneConfig(**{**vars(cell.config), "multiple": multiple})
        batches = list(open_data(data, "train").take(cell.images, seed=0))
        result = ldrf.prune(model, batches, speedup=cell.speedup, config=config)
        accuracy = measure_accuracy(result.model, test)
        ldrf.save(result, args.models / f"{args.cell}-{multiple}")
        found |= {"test_images": accuracy.images}
        found[str(multiple)] = {
            "speedup": round(result.speedup, 3),
            "top1": accuracy.top1,
            "widths": result.widths,
        }
    return found


def timed(cell: Cell, args: argparse.Namespace) -> dict[str, Any]:
    """Dense time / slim time of every slim network, by runtime and batch, one thread."""
    dense = dense_model(cell, args.weights)
    networks = {"dense": dense} | {str(m): ldrf.load(args.models / f"{args.cell}-{m}", dense).eval() for m in MULTIPLES}
    example = Inputs((torch.randn(16, 3, cell.side, cell.side),), {})
    files = {name: args.models / f"{args.cell}-{name}.onnx" for name in networks}
    for name, network in networks.items():
        write_onnx(network, example, files[name])
    found: dict[str, Any] = {}
    for runtime in ("torch", "onnxruntime"):
        for batch in (1, 16):
            inputs = example.map(lambda t, batch=batch: t[:batch])
            calls = {name: _call(network, files[name], runtime, inputs) for name, network in networks.items()}
            times = {name: measured.median for name, measured in take_turns(calls, 1, args.seconds).items()}
            found[f"{runtime}, batch {batch}"] = {str(m): round(times["dense"] / times[str(m)], 3) for m in MULTIPLES}
    return found


def _call(network: nn.Module, file: Path, runtime: str, inputs: Inputs) -> Callable[[], Any]:
    if runtime == "torch":
        return lambda: inputs.call(network)
    run = onnx_runner(file, 1)
    return lambda: run(inputs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", choices=("prune", "time"))
    parser.add_argument("cell", choices=CELLS)
    parser.add_argument("--cifar10", type=Path)
    parser.add_argument("--imagenet", type=Path)
    parser.add_argument("--weights", type=Path, default=Path())
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=6.0)
    args = parser.parse_args()
    keep_large_blocks()
    work = {"prune": prune, "time": timed}[args.work]
    measured = {args.work: work(CELLS[args.cell], args)}
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results[args.cell] = results.get(args.cell, {}) | measured
    RESULTS.write_text(json.dumps(dict(sorted(results.items())), indent=2) + "\n")
    print(json.dumps(measured, indent=2))


if __name__ == "__main__":
    main()
