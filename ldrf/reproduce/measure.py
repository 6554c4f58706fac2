"""How each kind of cell is measured: settings in, outcome out."""

import copy
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import nn

import ldrf
from ldrf.calibration.indexed_batches import IndexedBatches
from ldrf.config import PruneConfig
from ldrf.data.cifar10 import MEAN, STD
from ldrf.errors import LdrfError
from ldrf.measuring.accuracy import measure_accuracy
from ldrf.measuring.timing import latency_ratio
from ldrf.reproduce.cells import Cell, Kind, Shelf
from ldrf.reproduce.maps import enhanced, output_of, pack
from ldrf.reproduce.rivals import EXTERNAL, prune_externally
from ldrf.reproduce.subject import Subject
from ldrf.tracing.counting import count_macs, count_parameters
from ldrf.zoo.training import evaluate, fine_tuning, train, training_curve

Outcome = dict[str, Any]


def measure(cell: Cell, subject: Subject, shelf: Shelf) -> Outcome:
    """The outcome of ``cell``, ready for JSON."""
    return KINDS[cell.kind](cell, subject, shelf)


def _dense(cell: Cell, subject: Subject, shelf: Shelf) -> Outcome:
    """Accuracy and cost of the network as it came."""
    del shelf
    return _figures(subject.model, cell, subject)


def _figures(model: nn.Module, cell: Cell, subject: Subject) -> Outcome:
    accuracy = measure_accuracy(model, subject.test.take(cell.settings["test_images"]))
    return {
        **{"top1": accuracy.top1, "top5": accuracy.top5, "test_images": accuracy.images},
        "macs": count_macs(model, subject.example(1)),
        "parameters": count_parameters(model),
    }


def _prune(cell: Cell, subject: Subject, shelf: Shelf) -> Outcome:
    """One method to one target, or to what the source reached; accuracy before any fine-tuning."""
    wants, seed = cell.settings, cell.settings["seed"]
    batches = subject.train.take(wants["images"], seed)
    before = _reached(cell, shelf)
    if wants["method"] in EXTERNAL:
        speedup = before["dense_macs"] / before["macs"]
        slim, facts = prune_externally(wants["method"], subject.model, batches, speedup, before["widths"]), {}
    else:
        target = {"widths": before["widths"]} if before else wants["target"]
        named = {} if wants["method"] == "ldrf" else {"method": wants["method"]}
        config = PruneConfig(seed=seed, **{"joint_steps": 0, **wants["config"]})
        result = ldrf.prune(subject.model, batches, ignore=wants["ignore"], config=config, **target, **named)
        ldrf.save(result, shelf.place(cell), force=True)
        slim, facts = result.model.eval(), {"widths": result.widths, "stages": result.seconds}
    return {
        **_figures(slim, cell, subject),
        "dense_macs": subject.macs,
        "sparsity": _sparsity(subject.model, slim),
        **facts,
    }


def _reached(cell: Cell, shelf: Shelf) -> Outcome:
    """The outcome of the cell's source, whose widths or MACs it is to meet."""
    if cell.source is None:
        return {}
    record = shelf.find(cell.source)
    if record is None:
        raise LdrfError(f"{cell.name} takes the widths of {cell.source.name}, which is not finished.")
    return record["outcome"]


def _sparsity(dense: nn.Module, slim: nn.Module) -> dict[str, float]:
    """Percent of each weight that is gone, filter and channel level together (Tab. 1's "Spar.")."""
    left = {name: tensor.numel() for name, tensor in slim.named_parameters()}
    gone = {n: 100 - 100 * left[n] / t.numel() for n, t in dense.named_parameters() if t.ndim > 1}
    return {name.removesuffix(".weight"): round(share, 3) for name, share in gone.items() if share}


def _tune(cell: Cell, subject: Subject, shelf: Shelf) -> Outcome:
    """Fine-tune the source's network with labels as the paper does, and watch its accuracy on some test images."""
    wants = cell.settings
    watched = subject.labelled("test")[: wants["watched"]]
    recipe = fine_tuning(wants["iterations"], wants["seed"])
    model = _network(cell, subject, shelf)
    start = evaluate(model, watched)
    model = train(model, subject.labelled("train"), watched, shelf.place(cell), recipe)
    return {
        **_figures(model, cell, subject),
        "start": start,
        "curve": training_curve(shelf.place(cell)),
        "watched": len(watched),
        "recipe": asdict(recipe),
    }


def _network(cell: Cell, subject: Subject, shelf: Shelf) -> nn.Module:
    """The network of the cell's source, made again if its folder was deleted."""
    source = cell.source
    if source is None or source.kind == "dense":
        return copy.deepcopy(subject.model)
    if not shelf.place(source).is_dir():
        start = time.perf_counter()
        shelf.keep(source, measure(source, subject, shelf), time.perf_counter() - start)
    return ldrf.load(shelf.place(source), subject.model).eval()


def _time(cell: Cell, subject: Subject, shelf: Shelf) -> Outcome:
    """Milliseconds of dense and slim on the same images, beside what their MACs promise."""
    slim = _network(cell, subject, shelf)
    example = subject.example(cell.settings["batch"])
    milliseconds = latency_ratio(subject.model.eval(), slim, example, cell.settings["seconds"])
    macs = {"dense_macs": subject.macs, "macs": count_macs(slim, example)}
    return {**macs, "ms": milliseconds, "threads": torch.get_num_threads()}


def _energy(cell: Cell, subject: Subject, shelf: Shelf) -> Outcome:
    """Algorithm 1's loop, with labels."""
    del shelf
    wants = cell.settings
    batches = subject.train.take(wants["images"], wants["seed"])
    search = ldrf.find_energy(
        subject.model, batches, steps=wants["steps"], ignore=wants["ignore"], seed=wants["seed"], labelled=True
    )
    return search.as_dict()


def _ranks(cell: Cell, subject: Subject, shelf: Shelf) -> Outcome:
    """Ranks of all layers at one energy."""
    del shelf
    wants = cell.settings
    analysis = ldrf.analyze(subject.model, subject.train.take(wants["images"]), energy=wants["energy"])
    return {"energy": analysis.energy, "ranks": analysis.ranks}


def _maps(cell: Cell, subject: Subject, shelf: Shelf) -> Outcome:
    """What one module puts out for one test image, dense and slim, as bytes [channels, h, w] (Fig. 6)."""
    chosen = replace(subject.test, rows=(cell.settings["image"],)) if isinstance(subject.test, IndexedBatches) else None
    image = next(iter(chosen or subject.test))[0][:1]
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    networks = {"dense": subject.model, "slim": _network(cell, subject, shelf)}
    seen = {name: output_of(model, cell.settings["module"], image) for name, model in networks.items()}
    return {"image": pack(image[0] * std + mean), **{name: pack(enhanced(maps)) for name, maps in seen.items()}}


KINDS: dict[Kind, Callable[[Cell, Subject, Shelf], Outcome]] = {
    "dense": _dense,
    "prune": _prune,
    "tune": _tune,
    "time": _time,
    "energy": _energy,
    "ranks": _ranks,
    "maps": _maps,
}
