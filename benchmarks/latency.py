"""Asked for a latency, measured a latency: one JSON file per cell in ``benchmarks/latency/``, cells that are there are
left alone.

``python benchmarks/latency.py grid --network vgg9`` plans every runtime, batch, number of threads and ratio, and times
each plan against the dense network in a process of its own. ``macs`` does the same for plans by MACs, ``accuracy``
compares both at the same latency on labelled images, ``tables`` times the tables of ResNet-50 cold and warm,
``allocators`` compares the exact and the greedy plan of VGG-9, ``practise`` compares networks without whole blocks
(``practise.py``) with ours, with and without ``depth``, at the same latency, ``summary`` prints what there is. Nothing
is tuned on test images.
"""

import argparse
import copy
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from engine import resnet50_v1
from safetensors.torch import load_file
from torch import Tensor, nn

import ldrf
from ldrf.calibration.network import Network, read_network, with_coupled
from ldrf.calibration.survey import survey
from ldrf.cli.vision import import_vision
from ldrf.data.sources import open_data
from ldrf.deployment.deployed import Deployed, deploy
from ldrf.errors import OutOfReach
from ldrf.inputs import Inputs, repeated
from ldrf.measuring.accuracy import measure_accuracy
from ldrf.planning.allocation import allocate_by_error, reachable, total_errors
from ldrf.planning.chain_allocation import allocate_chain, chain_order
from ldrf.planning.curves import output_curves, removal_curves
from ldrf.planning.latency_model import latency_model
from ldrf.planning.latency_plan import needs_coupled, plan_by_latency
from ldrf.planning.objectives.speedup import ENTRY as MACS
from ldrf.planning.plan import choices_of
from ldrf.planning.ranks import unit_ranks, unit_spectra
from ldrf.planning.time_allocation import allocate_by_jumps
from ldrf.runtime.allocator import keep_large_blocks
from ldrf.runtime.progress import progress
from ldrf.units.targets import read_target
from ldrf.units.width_choices import Choices
from ldrf.zoo.cifar_resnet import resnet20
from ldrf.zoo.pretrained import pretrained_vgg9

CONFIG = ldrf.PruneConfig(allocation="error")
RUNTIMES, BATCHES, THREADS, RATIOS = ("torch", "onnxruntime"), (1, 16), (1, 2), (1.5, 2.0)
SECONDS, LEAST = 10.0, 5.0  # of each network in the final timing, at most and at least


@dataclass(frozen=True)
class Subject:
    """A network, its weights file (none: bundled, or random where only time is measured), and how it is pruned."""

    make: Callable[[], nn.Module]
    weights: str | None
    side: int
    macs: tuple[float, ...] = ()  # speedups of the cells by MACs
    data: str = ""
    images: int = 0
    config: ldrf.PruneConfig = CONFIG


def _torchvision(name: str) -> Callable[[], nn.Module]:
    return lambda: getattr(import_vision("torchvision").models, name)(weights=None)


SUBJECTS = {
    "vgg9": Subject(
        pretrained_vgg9, None, 32, (2.0, 3.0), "cifar10", 2000, ldrf.PruneConfig(steps=50, joint_steps=250)
    ),
    "resnet20": Subject(resnet20, "resnet20-cifar10.safetensors", 32, (), "cifar10", 2048, ldrf.PruneConfig()),
    "mobilenet_v2": Subject(
        _torchvision("mobilenet_v2"),
        "mobilenet_v2.pth",
        224,
        (1.5,),
        "imagenet",
        512,
        ldrf.PruneConfig(solver="closed-form"),
    ),
    "resnet50": Subject(
        resnet50_v1,
        "resnet50-v1-imagenet.safetensors",
        224,
        (2.0, 3.0),
        "imagenet",
        512,
        ldrf.PruneConfig(solver="closed-form"),
    ),
    "vit": Subject(lambda: import_vision("timm").create_model("vit_tiny_patch16_224"), None, 224),
}


@dataclass(frozen=True)
class Planned:
    """A network with everything that is the same for all its plans."""

    network: Network
    curves: dict[str, Tensor]

    def choices(self, network: Network) -> Choices:
        ranks = unit_ranks(network.units, unit_spectra(network.model, network.units), CONFIG.energy)
        return choices_of(network.units, ranks, CONFIG)


def dense_model(name: str, weights: Path) -> nn.Module:
    subject = SUBJECTS[name]
    torch.manual_seed(0)
    model = subject.make()
    if subject.weights:
        path = weights / subject.weights
        state = load_file(path) if path.suffix == ".safetensors" else torch.load(path, weights_only=True)
        model.load_state_dict({k: t.float() if t.is_floating_point() else t for k, t in state.items()})
    return model.eval()


def read(name: str, args: argparse.Namespace, images: list[Any] | None = None) -> Planned:
    """Trace a network and find the error curves of all its units, coupled ones among them."""
    side = SUBJECTS[name].side
    if images is None:
        small = open_data("sample", "train").take(512)
        images = list(small) if side == 32 else list(open_data(f"imagefolder:{args.imagenet}", "train").take(64))
    network = read_network(dense_model(name, args.weights), images, (), CONFIG)
    whole = with_coupled(network) if network.coupled else network
    surveys = survey(whole.trace, whole.dense, whole.units, whole.calibration, CONFIG.seed, progress)
    removals = removal_curves(whole, read_target(speedup=2.0), surveys, CONFIG)
    return Planned(network, output_curves(whole, surveys, removals, CONFIG))


def for_ratio(planned: Planned, ratio: float, deployed: Deployed) -> tuple[Network, Choices]:
    """The network with the units that this ratio needs."""
    network, choices = planned.network, planned.choices(planned.network)
    if network.coupled and needs_coupled(network, choices, read_target(latency=ratio), deployed):
        network = with_coupled(network)
        choices = planned.choices(network)
    return network, choices


def plan_latency(planned: Planned, ratio: float, deployed: Deployed) -> dict[str, Any]:
    """Widths that reach the ratio, what was measured on the way, and how long it took."""
    began = time.perf_counter()
    network, choices = for_ratio(planned, ratio, deployed)
    curves = {unit.name: planned.curves[unit.name] for unit in network.units}
    widths, latency = plan_by_latency(network, read_target(latency=ratio), choices, deployed, curves)
    cost = MACS.cost(network)
    return {
        "asked": ratio,
        "widths": widths,
        "coupled": any(u.coupled for u in network.units),
        "planned": {"ratio": latency.ratio, "dense_ms": latency.dense, "slim_ms": latency.slim},
        "scatter": latency.scatter,
        "macs": cost.at({}) / cost.at(widths),
        "seconds": time.perf_counter() - began,
    }


def plan_macs(planned: Planned, speedup: float) -> tuple[Network, dict[str, Any]]:
    """Widths that a plan by MACs comes to with default multiples, and the network with the units it needs."""
    network = planned.network
    if network.coupled and reachable(MACS.cost(network), planned.choices(network)) < speedup:
        network = with_coupled(network)
    cost = MACS.cost(network)
    curves = {unit.name: planned.curves[unit.name] for unit in network.units}
    widths = allocate_by_error(cost, speedup, curves, planned.choices(network))
    coupled = any(u.coupled for u in network.units)
    return network, {"asked": speedup, "widths": widths, "coupled": coupled, "macs": cost.at({}) / cost.at(widths)}


def cell_file(args: argparse.Namespace, *parts: Any) -> Path:
    return args.results / ("-".join(str(p) for p in parts) + ".json")


def write(path: Path, record: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=2) + "\n")
    print(path.name, {k: v for k, v in record.items() if k not in ("widths",)}, flush=True)


def cut_model(name: str, record: dict[str, Any], weights: Path) -> tuple[nn.Module, nn.Module, Inputs]:
    """The dense network and one of the recorded widths, cut plainly."""
    from ldrf.units.indices import covering
    from ldrf.units.module_surgery import cut_plainly

    dense, side = dense_model(name, weights), SUBJECTS[name].side
    example = Inputs((torch.randn(2, 3, side, side),), {})
    network = read_network(dense, [example.args[0]], (), CONFIG)
    network = with_coupled(network) if record["coupled"] else network
    slim = copy.deepcopy(dense)
    cut_plainly(
        slim, network.units, {u.name: covering(u, torch.arange(record["widths"][u.name])) for u in network.units}
    )
    return dense, slim, example


def time_cell(args: argparse.Namespace) -> None:
    """Time the network of a cell's file against the dense one; nothing else runs in this process."""
    from ldrf.deployment.runtime import find_runtime
    from ldrf.deployment.stopwatch import time_in_turns

    record = json.loads(args.file.read_text())
    where = record["deployment"]
    dense, slim, example = cut_model(record["network"], record, args.weights)
    runtime, inputs = find_runtime(where["runtime"]), repeated(example, where["batch"])
    calls = {n: runtime.prepare(m, inputs, where["threads"]).call for n, m in (("dense", dense), ("slim", slim))}
    timed = time_in_turns(calls, where["threads"], runtime.clock, SECONDS, LEAST)
    seconds = {f"{name}_ms": 1000 * s for name, s in timed.seconds.items()}
    write(args.file, record | {"measured": {"ratio": timed.ratio(), **seconds, "scatter": timed.scatter}})


def timed_apart(path: Path, args: argparse.Namespace) -> None:
    """Run the timing of a cell in a new process, as it is after any prune."""
    if "measured" not in json.loads(path.read_text()):
        threads = json.loads(path.read_text())["deployment"]["threads"]
        command = [sys.executable, __file__, "time", "--file", str(path), "--weights", str(args.weights)]
        subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": str(threads)})


def grid(args: argparse.Namespace) -> None:
    """Every runtime, batch, number of threads and ratio; ratio 3 in onnxruntime where the cells by MACs have it."""
    name, planned = args.network, None
    for runtime, batch, threads in itertools.product(args.runtimes, args.batches, args.threads):
        more = [r for r in SUBJECTS[name].macs if r not in RATIOS and runtime == "onnxruntime" and threads == 1]
        files = {r: cell_file(args, "grid", name, runtime, f"b{batch}", f"t{threads}", r) for r in (*RATIOS, *more)}
        deployed = None
        for ratio, path in files.items():
            if not path.exists():
                planned = planned or read(name, args)
                where = ldrf.Deployment(runtime, batch, threads)
                deployed = deployed or deploy(planned.network.model, planned.network.example, where)
                head = {"network": name, "deployment": vars(where)}
                try:
                    write(path, head | plan_latency(planned, ratio, deployed))
                except ldrf.LdrfError as problem:
                    print(path.name, problem, flush=True)
                    continue
            timed_apart(path, args)


def macs(args: argparse.Namespace) -> None:
    """Plans by MACs on the clock, one thread."""
    name, planned = args.network, None
    places = [ldrf.Deployment(runtime, batch, 1) for runtime in args.runtimes for batch in args.batches]
    for where, speedup in itertools.product(places, SUBJECTS[name].macs):
        path = cell_file(args, "macs", name, where.runtime, f"b{where.batch}", speedup)
        if not path.exists():
            planned = planned or read(name, args)
            write(path, {"network": name, "deployment": vars(where), **plan_macs(planned, speedup)[1]})
        timed_apart(path, args)


def accuracy(args: argparse.Namespace) -> None:
    """A network by latency, and one by MACs of the same measured latency: which is right more often."""
    name, subject = args.network, SUBJECTS[args.network]
    path, ratio = cell_file(args, "accuracy", name, args.ratio), args.ratio
    if path.exists():
        return
    data = f"cifar10:{args.cifar10}" if subject.data == "cifar10" else f"imagefolder:{args.imagenet}"
    model, where = dense_model(name, args.weights), ldrf.Deployment("onnxruntime", 1, 1)
    batches, test = list(open_data(data, "train").take(subject.images, seed=0)), open_data(data, "test")
    ours = ldrf.prune(model, batches, latency=ratio, deployment=where, config=subject.config)
    assert ours.latency is not None
    planned = read(name, args, batches)
    deployed = deploy(planned.network.model, planned.network.example, where)
    speedup = equal_speedup(planned, deployed, ours.latency.ratio)
    found = {
        "network": name,
        "images": subject.images,
        "dense": measure_accuracy(model, test).top1,
        "latency": {"top1": measure_accuracy(ours.model, test).top1, "ratio": ours.latency.ratio, "macs": ours.speedup},
        "widths": ours.widths,
    }
    try:
        theirs = ldrf.prune(model, batches, speedup=speedup, config=subject.config)
    except OutOfReach as problem:
        found["macs"] = {"out_of_reach": str(problem)}
    else:
        network, _ = plan_macs(planned, speedup)
        timed = deployed.time_cut(network.units, theirs.widths).ratio()
        top1 = measure_accuracy(theirs.model, test).top1
        found["macs"] = {"top1": top1, "ratio": timed, "macs": theirs.speedup}
    write(path, found)


def practise(args: argparse.Namespace) -> None:
    """PRACTISE, then ours to the latency that it came to, on the same images: which is right more often."""
    from practise import Settings
    from practise import practise as drop_blocks

    name, subject = args.network, SUBJECTS[args.network]
    path = cell_file(args, "practise", name, args.ratio)
    if path.exists():
        return
    data = args.data or (f"cifar10:{args.cifar10}" if subject.side == 32 else f"imagefolder:{args.imagenet}")
    model, where = dense_model(name, args.weights), ldrf.Deployment("onnxruntime", 1, 1)
    batches = list(open_data(data, "train").take(args.images or subject.images or 512, seed=0))
    images = torch.cat([batch[0] if isinstance(batch, list | tuple) else batch for batch in batches])
    began = time.perf_counter()
    settings = Settings(adaptor_steps=args.steps, epochs=args.epochs, precision=args.precision)
    theirs = drop_blocks(model, images, args.ratio, where, settings)
    found = {"practise": _compared(theirs.model, theirs.ratio, data, began) | {"dropped": theirs.dropped}}
    for kind, depth in (("widths", False), ("depth", True)):
        began, config = time.perf_counter(), ldrf.PruneConfig(depth=depth, precision=args.precision)
        ours = ldrf.prune(model, batches, latency=theirs.ratio, deployment=where, config=config)
        assert ours.latency is not None
        found[kind] = _compared(ours.model, ours.latency.ratio, data, began) | {"widths": ours.widths}
    dense = measure_accuracy(model, open_data(data, "test")).top1
    write(path, {"network": name, "images": len(images), "asked": args.ratio, "dense": dense, **found})


def _compared(model: nn.Module, ratio: float, data: str, began: float) -> dict[str, Any]:
    seconds = time.perf_counter() - began
    return {"top1": measure_accuracy(model, open_data(data, "test")).top1, "ratio": ratio, "seconds": seconds}


def equal_speedup(planned: Planned, deployed: Deployed, ratio: float) -> float:
    """The speedup by MACs whose plan is as fast on the clock, found by building and timing plans."""
    low, high = 1.02, 3 * ratio
    for _ in range(8):
        middle = (low * high) ** 0.5
        network, plan = plan_macs(planned, middle)
        fast = deployed.time_cut(network.units, plan["widths"]).ratio() >= ratio
        low, high = (low, middle) if fast else (middle, high)
    return (low * high) ** 0.5


def tables(args: argparse.Namespace) -> None:
    """Seconds that the tables of ResNet-50 take in onnxruntime, batch 1, cold and warm."""
    network = read_network(dense_model("resnet50", args.weights), [torch.randn(2, 3, 224, 224)], (), CONFIG)
    planned = Planned(network, {})
    seconds = {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LDRF_CACHE"] = folder
        deployed = deploy(network.model, network.example, ldrf.Deployment("onnxruntime", 1, 1))
        whole = deployed.dense_seconds  # the export and the timing of the whole are not part of the tables
        for kind in ("cold", "warm"):
            began = time.perf_counter()
            model = latency_model(network.trace, network.units, planned.choices(network), deployed)
            seconds[kind] = time.perf_counter() - began
    layers = sum(layer.at(model.full) for layer in model.layers) / model.layers[0].scale
    write(cell_file(args, "tables", "resnet50"), {**seconds, "dense_ms": 1000 * whole, "layers_ms": 1000 * layers})


def allocators(args: argparse.Namespace) -> None:
    """Estimated error of the exact plan and of the greedy one, by the same tables of VGG-9."""
    planned = read("vgg9", args)
    network, choices = planned.network, planned.choices(planned.network)
    deployed = deploy(network.model, network.example, ldrf.Deployment("onnxruntime", 1, 1))
    model = latency_model(network.trace, network.units, choices, deployed)
    order = chain_order(model, choices)
    assert order is not None
    errors = {name: total_errors(planned.curves[name], choices[name]) for name in model.full}
    found = {}
    for ratio in (1.25, 1.5, 2.0, 2.5, 3.0):
        plans = {
            "exact": allocate_chain(model, order, ratio, errors, choices),
            "greedy": allocate_by_jumps(model, ratio, errors, choices),
        }
        found[str(ratio)] = {
            kind: {
                "error": sum(errors[n][choices[n].index(w)] for n, w in widths.items()),
                "ratio": model.at({}) / model.at(widths),
            }
            for kind, widths in plans.items()
        }
    write(cell_file(args, "allocators", "vgg9"), found)


def records(args: argparse.Namespace, kind: str) -> Iterator[dict[str, Any]]:
    for path in sorted(args.results.glob(f"{kind}-*.json")):
        yield json.loads(path.read_text())


def summary(args: argparse.Namespace) -> None:
    """How many cells are where they should be, and those that are not."""
    cells = [c for c in records(args, "grid") if "measured" in c and c["asked"] in RATIOS]
    good = [c for c in cells if 0.97 <= c["measured"]["ratio"] / c["asked"] <= 1.08]
    print(f"grid: {len(good)} of {len(cells)} cells within -3 % / +8 % of what was asked")
    for c in cells:
        if c not in good:
            print("  ", c["network"], c["deployment"], c["asked"], round(c["measured"]["ratio"], 3))
    for c in records(args, "grid"):
        if "measured" in c and c["deployment"]["runtime"] == "onnxruntime" and c["deployment"]["threads"] == 1:
            share = c["measured"]["ratio"] / c["macs"]
            print("latency", c["network"], c["deployment"]["batch"], c["asked"], f"measured / MACs {share:.2f}")
    for c in records(args, "macs"):
        if "measured" in c:
            share = c["measured"]["ratio"] / c["macs"]
            where = f"{c['deployment']['runtime']} b{c['deployment']['batch']}"
            print("macs", c["network"], where, c["asked"], f"measured / MACs {share:.2f}")
    for kind in ("accuracy", "tables", "allocators", "practise"):
        for c in records(args, kind):
            print(kind, json.dumps({k: v for k, v in c.items() if k != "widths"}))


def main() -> None:
    works = {f.__name__: f for f in (grid, macs, accuracy, tables, allocators, practise, summary)} | {"time": time_cell}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", choices=works)
    parser.add_argument("--network", choices=SUBJECTS, default="vgg9")
    parser.add_argument("--runtimes", nargs="+", default=list(RUNTIMES))
    parser.add_argument("--batches", nargs="+", type=int, default=list(BATCHES))
    parser.add_argument("--threads", nargs="+", type=int, default=list(THREADS))
    parser.add_argument("--ratio", type=float, default=2.0)
    parser.add_argument("--weights", type=Path, default=Path())
    parser.add_argument("--cifar10", type=Path)
    parser.add_argument("--imagenet", type=Path)
    parser.add_argument("--data", help="of practise, where it is neither CIFAR-10 nor ImageNet")
    parser.add_argument("--images", type=int, help="of practise")
    parser.add_argument("--steps", type=int, default=1000, help="of practise: training steps of the adaptors")
    parser.add_argument("--epochs", type=int, default=2000, help="of practise: passes of feature mimicking")
    parser.add_argument("--precision", default="float32", help="of practise, in which all networks are trained")
    parser.add_argument("--results", type=Path, default=Path(__file__).with_name("latency"))
    parser.add_argument("--file", type=Path)
    args = parser.parse_args()
    keep_large_blocks()
    works[args.work](args)


if __name__ == "__main__":
    main()
