"""ResNet-50 and MobileNetV2 pruned on 3,000 unlabelled ImageNet pictures, judged on validation images.

``python benchmarks/imagenet.py mobilenet_v2-1.5x --imagenet FOLDER --weights FOLDER --work FOLDER`` prunes, resumes
where it was killed, and notes the outcome in ``imagenet.json``. ``FOLDER`` has ``train``, ``unlabelled`` and ``val``.
With ``--tune MINUTES`` the network that it left is fine-tuned without labels on the same pictures. A network is too
good on pictures that it was pruned on to be judged by them: ``--apart 300`` keeps so many of the 3,000 for that alone.
"""

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from latency import dense_model
from torch import Tensor

import ldrf
from ldrf.data.cifar10 import normalise
from ldrf.data.imagefolder import find_pictures, read_image
from ldrf.data.sources import open_data
from ldrf.finetuning.data import in_memory
from ldrf.measuring.accuracy import measure_accuracy
from ldrf.runtime.allocator import keep_large_blocks

RESULTS = Path(__file__).with_name("imagenet.json")
IMAGES = 3000


@dataclass(frozen=True)
class Cell:
    """A network of ``latency.py``, by how much its MACs shrink, and how."""

    network: str
    speedup: float
    config: ldrf.PruneConfig


IN_BFLOAT16 = ldrf.PruneConfig(precision="bfloat16", joint_rate=0.014, multiple=16)
CELLS = {
    "mobilenet_v2-1.3x": Cell("mobilenet_v2", 1.3, ldrf.PruneConfig(multiple=16)),
    "mobilenet_v2-1.5x": Cell("mobilenet_v2", 1.5, ldrf.PruneConfig(multiple=16)),
    "resnet50-1.73x": Cell("resnet50", 1.73, IN_BFLOAT16),
    "resnet50-2.27x": Cell("resnet50", 2.27, IN_BFLOAT16),
    "resnet50-3x": Cell("resnet50", 3.0, IN_BFLOAT16),
}


def calibration(folder: Path, images: slice) -> list[Tensor]:
    """Batches of 32 from the pictures of ``train`` and ``unlabelled``: a part of the 3,000 in one random order."""
    paths = [path for part in ("train", "unlabelled") for path in find_pictures(folder / part, "train").paths]
    order = torch.randperm(len(paths), generator=torch.Generator().manual_seed(0))[:IMAGES][images]
    pictures = [normalise(read_image(paths[row])[None])[0] for row in order.tolist()]
    return list(torch.stack(pictures).split(32))


def run_cell(cell: Cell, place: Path, imagenet: Path, weights: Path, apart: int) -> dict[str, Any]:
    """Prune, and compare with the dense network on all validation images."""
    model, test = dense_model(cell.network, weights), open_data(f"imagefolder:{imagenet}", "test")
    batches = calibration(imagenet, slice(IMAGES - apart))
    result = ldrf.prune(model, batches, speedup=cell.speedup, config=cell.config, out=place, resume=place.exists())
    dense, slim = (asdict(measure_accuracy(network, test)) for network in (model, result.model))
    known = {key: result.as_dict()[key] for key in ("widths", "config", "seconds", "versions")}
    return {"speedup": result.speedup, "images": IMAGES - apart, "threads": torch.get_num_threads(), **known} | {
        "dense": dense,
        "slim": slim,
    }


def tune_cell(
    cell: Cell, place: Path, imagenet: Path, weights: Path, minutes: float, rate: float, apart: int
) -> dict[str, Any]:
    """Fine-tune the network that a cell left towards the dense one, on the pictures that it was pruned on."""
    dense, test = dense_model(cell.network, weights), open_data(f"imagefolder:{imagenet}", "test")
    result, images = ldrf.load_result(place, dense), calibration(imagenet, slice(IMAGES - apart))
    judging = calibration(imagenet, slice(IMAGES - apart, IMAGES)) if apart else None
    config = ldrf.FinetuneConfig(minutes=minutes, epochs=100, rate=rate, precision=cell.config.precision)
    batches = in_memory(result.model, images, labelled=False).sized(config.batch)
    resume = place.with_name(f"{place.name}.tuning")
    tuned = ldrf.finetune(result, dense, batches, held_out=judging, config=config, resume=resume)
    return {
        "images": {"trained": IMAGES - apart, "apart": apart},
        "slim": asdict(measure_accuracy(tuned.model, test)),
        "minutes": minutes,
        "threads": torch.get_num_threads(),
        **{key: tuned.as_dict()["finetune"][key] for key in ("config", "epochs", "versions")},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cell", choices=CELLS)
    parser.add_argument("--imagenet", type=Path, required=True)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="where a run is kept while it goes on")
    parser.add_argument("--tune", type=float, metavar="MINUTES", help="fine-tune the pruned network so long")
    parser.add_argument("--rate", type=float, default=0.01, help="top rate of the fine-tuning")
    parser.add_argument("--apart", type=int, default=0, metavar="IMAGES", help="pictures that only judge it")
    args = parser.parse_args()
    keep_large_blocks()
    cell, name = CELLS[args.cell], args.cell if not args.apart else f"{args.cell}-apart"
    place, folders = args.work / name, (args.imagenet, args.weights)
    if args.tune:
        name, outcome = f"{name}-tuned", tune_cell(cell, place, *folders, args.tune, args.rate, args.apart)
    else:
        outcome = run_cell(cell, place, *folders, args.apart)
    done = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    RESULTS.write_text(json.dumps(done | {name: outcome}, indent=1) + "\n")
    print(name, {key: outcome[key] for key in ("speedup", "dense", "slim") if key in outcome})


if __name__ == "__main__":
    main()
