"""What pruning a network asks of a device: operations and bytes, counted on a few small images.

``python benchmarks/device_estimate.py resnet50`` (or ``vit_b_16``) prunes torchvision's network with random weights
three times: without descent, with one step per unit, and with one step of all units together. It prints, in passes of
the dense network over the images concerned, what each part computes in float32 and in float64, and what it keeps.
Counts per pass do not depend on the size of images; bytes of activations grow with their area.
"""

import argparse
import json
from collections import Counter
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

import ldrf
from ldrf.algebra.muon import Muon
from ldrf.calibration.network import Network, read_network
from ldrf.calibration.store import ActivationStore, Key
from ldrf.cli.vision import import_vision
from ldrf.inputs import Inputs
from ldrf.reconstruction import all_units
from ldrf.tracing.counting import count_macs
from ldrf.tracing.patches import count_columns


class Operations(TorchDispatchMode):
    """Adds up multiplications and additions by the kind of numbers, as torch's own counter does by operator."""

    def __init__(self) -> None:
        super().__init__()
        self.count: Counter[str] = Counter()
        self.optimises = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        formula = flop_registry.get(func._overloadpacket)
        first = next((value for value in args if isinstance(value, torch.Tensor)), None)
        if formula is not None and type(first) in (torch.Tensor, nn.Parameter):  # no stand-in that only has a shape
            kind = "float64" if first is not None and first.dtype == torch.float64 else "float32"
            self.count["optimiser" if self.optimises else kind] += formula(*args, **(kwargs or {}), out_val=made)
        return made

    def optimise(self, muon: Muon) -> None:
        """A step of Muon, whose products depend on the weights alone: counted apart from what every image costs."""
        self.optimises = True
        STEP(muon)
        self.optimises = False


class Bytes:
    """The most bytes that the store of activations keeps at a time."""

    def __init__(self) -> None:
        self.stored = 0

    def put(self, store: ActivationStore, key: Key, value: torch.Tensor) -> None:
        PUT(store, key, value)
        self.stored = max(self.stored, store.used)


PUT, STEP = ActivationStore.put, Muon.step


def network(name: str, size: int) -> nn.Module:
    torch.manual_seed(0)
    options = {"image_size": size} if name.startswith("vit") else {}
    return import_vision("torchvision").models.get_model(name, weights=None, **options).eval()


def counted(model: nn.Module, batch: torch.Tensor, keep: dict[str, float], chunk: int, **steps: Any) -> dict[str, Any]:
    """Operations of one run, and the bytes that it kept."""
    config = ldrf.PruneConfig(selection="weight", chunk=chunk, multiple=1, **steps)
    kept = Bytes()
    operations = Operations()
    ActivationStore.put = lambda store, key, value: kept.put(store, key, value)  # pyright: ignore
    Muon.step = lambda muon, closure=None: operations.optimise(muon)  # pyright: ignore
    try:
        with operations:
            ldrf.prune(model, [batch], keep=keep, config=config)
    finally:
        ActivationStore.put, Muon.step = PUT, STEP
    return {**operations.count, "stored": kept.stored}


def sizes(found: Network) -> dict[str, int]:
    """Bytes of weights, of the Gram matrices of all readers at once, and of all values of one image."""
    readers = {c.layer.node: c.layer for unit in found.units for c in unit.consumers}
    weights = sum(t.numel() * t.element_size() for t in found.model.state_dict().values())
    trace, one = found.trace, found.example.map(lambda t: t[:1])
    with torch.no_grad():
        values = all_units.run(trace, found.dense, trace.nodes, all_units.input_values(trace, one))
    per_image = sum(v.numel() * v.element_size() for v in values.values() if isinstance(v, torch.Tensor))
    grams = [8 * (count_columns(layer) + 1) ** 2 for layer in readers.values()]
    return {"weights": weights, "grams": sum(grams), "largest_gram": max(grams), "values_per_image": per_image}


def main(name: str, size: int, images: int, chunk: int) -> dict[str, Any]:
    model, batch = network(name, size), torch.randn(images, 3, size, size)
    found = read_network(model, [batch], (), ldrf.PruneConfig(chunk=chunk))
    keep = {unit.name: 0.5 for unit in found.units}
    macs = count_macs(model, Inputs((batch,), {}))
    plain = counted(model, batch, keep, chunk, steps=0, joint_steps=0)
    stepped = counted(model, batch, keep, chunk, steps=1, joint_steps=0)
    together = counted(model, batch, keep, chunk, steps=0, joint_steps=1)
    per_chunk = 2 * macs * chunk
    return {
        "network": name,
        "size": size,
        "images": images,
        "units": len(keep),
        "macs_per_image": macs,
        "macs_per_image_at_224": count_macs(network(name, 224), Inputs((torch.randn(1, 3, 224, 224),), {})),
        "passes_per_image": round(plain["float32"] / (2 * macs * images), 2),
        "passes_per_image_of_a_step_in_every_unit": round((stepped["float32"] - plain["float32"]) / per_chunk, 2),
        "passes_per_image_of_a_step_of_all_units": round((together["float32"] - plain["float32"]) / per_chunk, 2),
        "operations_of_its_optimiser": together["optimiser"],
        "float64_operations": plain["float64"],
        "stored_per_image": plain["stored"] // images,
        **sizes(found),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=("resnet50", "vit_b_16"))
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--chunk", type=int, default=4)
    print(json.dumps(main(**vars(parser.parse_args())), indent=1))
