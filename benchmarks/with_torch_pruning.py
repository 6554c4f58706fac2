"""Torch-Pruning 1.6.1 (DepGraph) on the same units and MACs as ldrf: ``pip install 'ldrf[bench]'``.

``python benchmarks/with_torch_pruning.py --cifar10 FOLDER --weights resnet20-cifar10.safetensors [--speedup 2]`` cuts
ResNet-20 and prints its accuracy on training images that were not used for the gradients.
"""

import argparse
import copy
import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

import ldrf
from ldrf.calibration.indexed_batches import IndexedBatches
from ldrf.calibration.network import read_network
from ldrf.data.sources import open_data
from ldrf.inputs import Inputs, read_inputs, read_labels
from ldrf.measuring.accuracy import measure_accuracy
from ldrf.tracing.counting import count_macs
from ldrf.tracing.export import working_copy
from ldrf.zoo.cifar_resnet import resnet20

Importance = Literal["l1", "taylor"]
ROUNDS = 14  # of the bisection over the pruning ratio


def prune_with_torch_pruning(
    model: nn.Module, batches: Sequence[Any], speedup: float, importance: Importance = "l1"
) -> nn.Module:
    """A slim copy with at least ``speedup`` fewer MACs, at the smallest pruning ratio that reaches it.

    Layers that ldrf does not cut either are ignored, without which Torch-Pruning breaks zero-padded shortcuts.
    """
    inputs = read_inputs(model, batches[0])
    widths = {unit.name: unit.width for unit in read_network(model, batches[:1], (), ldrf.PruneConfig()).units}
    cut = set(widths)
    gradients = loss_gradients(model, batches) if importance == "taylor" else {}
    dense = count_macs(model, inputs)
    # Torch-Pruning leaves a layer whole when a ratio would take its last neuron.
    low, high = 0.0, 1 - 1.001 / min(widths.values())
    best = _pruned(model, inputs, cut, high, importance, gradients)
    if dense / count_macs(best, inputs) < speedup:
        raise ldrf.LdrfError(f"Torch-Pruning does not reach a speedup of {speedup} at a ratio of {high:.3f}.")
    for _ in range(ROUNDS):
        ratio = (low + high) / 2
        slim = _pruned(model, inputs, cut, ratio, importance, gradients)
        if dense / count_macs(slim, inputs) >= speedup:
            high, best = ratio, slim
        else:
            low = ratio
    return best


def loss_gradients(model: nn.Module, batches: Iterable[Any]) -> dict[str, Tensor]:
    """Gradient of the summed cross-entropy with respect to every parameter."""
    copied = working_copy(model)
    for batch in batches:
        F.cross_entropy(read_inputs(copied, batch).call(copied), read_labels(batch), reduction="sum").backward()
    return {name: p.grad for name, p in copied.named_parameters() if p.grad is not None}


def _pruned(
    model: nn.Module,
    inputs: Inputs,
    cut: set[str],
    ratio: float,
    importance: Importance,
    gradients: dict[str, Tensor],
) -> nn.Module:
    import torch_pruning as tp  # pyright: ignore[reportMissingImports]

    copied = copy.deepcopy(model).eval()
    for name, parameter in copied.named_parameters():
        parameter.grad = gradients.get(name)  # a deep copy has none
    layers = (nn.Linear, nn.modules.conv._ConvNd)
    ignored: list[nn.Module] = [m for name, m in copied.named_modules() if isinstance(m, layers) and name not in cut]
    score = tp.importance.GroupMagnitudeImportance(p=1) if importance == "l1" else tp.importance.GroupTaylorImportance()
    few = inputs.map(lambda t: t[:2])
    example: Any = few.kwargs or few.args
    pruner = tp.pruner.BasePruner(copied, example, importance=score, pruning_ratio=ratio, ignored_layers=ignored)
    pruner.step()
    copied.zero_grad(set_to_none=True)
    return copied


def split_training_images(data: str, images: int, test_images: int, seed: int) -> tuple[IndexedBatches, IndexedBatches]:
    """Disjoint random training images: to look at, and to judge by."""
    batches = open_data(data, "train")
    assert isinstance(batches, IndexedBatches)
    order = torch.randperm(len(batches.rows), generator=torch.Generator().manual_seed(seed)).tolist()
    parts = order[:images], order[images : images + test_images]
    first, second = (IndexedBatches(batches.read, tuple(sorted(part))) for part in parts)
    return first, second


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cifar10", required=True, help="folder with CIFAR-10")
    parser.add_argument("--weights", required=True, help="trained ResNet-20, .safetensors")
    parser.add_argument("--speedup", type=float, default=2.0)
    parser.add_argument("--images", type=int, default=2048, help="images for the gradients")
    parser.add_argument("--test-images", type=int, default=2000, help="other training images to judge by")
    options = parser.parse_args()
    model = resnet20()
    model.load_state_dict({name: tensor.float() for name, tensor in load_file(options.weights).items()})
    model.eval()
    seen, test = split_training_images(f"cifar10:{options.cifar10}", options.images, options.test_images, seed=0)
    batches = list(seen)
    inputs = read_inputs(model, batches[0])
    print(json.dumps({"dense": measure_accuracy(model, test).top1}), flush=True)
    for importance in ("l1", "taylor"):
        slim = prune_with_torch_pruning(model, batches, options.speedup, importance)
        speedup = count_macs(model, inputs) / count_macs(slim, inputs)
        found = {"importance": importance, "speedup": round(speedup, 4), "top1": measure_accuracy(slim, test).top1}
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
