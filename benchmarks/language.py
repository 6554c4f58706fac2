"""Perplexity of a small language model before fine-tuning, pruned and plainly cut: kept in ``language.json``.

``python benchmarks/language.py FILE.gguf TEXTS [--windows 64] [--judged 24] [--fewer 20 25 30]`` takes a Llama in a
gguf file, such as SmolLM2-135M-Instruct, and a folder with ``valid.txt`` (to calibrate) and ``test.txt`` (to judge),
such as WikiText-2. Windows have 512 tokens. A cell says how many per cent of the parameters outside the
embeddings are gone. Cells that are in the file are passed over. Seconds are those of the processor; the first cell has
those of the survey and the error curves, which all cells share. Packages ``gguf`` and ``accelerate`` are needed to read
the model.
"""

import argparse
import copy
import json
import math
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ldrf
from ldrf.cli.vision import import_vision
from ldrf.files.result_folders import unfinished
from ldrf.pipeline import pruned, stage_1
from ldrf.planning.findings import Findings
from ldrf.run import Run, Start, begin_run, read_start
from ldrf.saving.journal import open_journal
from ldrf.units.module_surgery import cut_plainly
from ldrf.units.targets import read_target

RESULTS = Path(__file__).with_name("language.json")
LENGTH = 512


def read_model(path: Path) -> tuple[nn.Module, Any]:
    """The model with plain weights, and its tokenizer; transformers flags what it reads from gguf as quantised."""
    import_vision("torchvision")  # which transformers looks for
    from transformers import AutoModelForCausalLM, AutoTokenizer

    read = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    config = read.config
    vars(config).pop("quantization_config", None)
    model = type(read)(config)
    model.load_state_dict(read.state_dict())
    return model.eval(), AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)


def windows(tokenizer: Any, path: Path, count: int) -> Tensor:
    """The first windows of a text, as tokens [count, 512]."""
    tokens = tokenizer(path.read_text(), return_tensors="pt")["input_ids"][0]
    return tokens[: count * LENGTH].view(-1, LENGTH)


@torch.inference_mode()
def perplexity(model: nn.Module, tokens: Tensor) -> float:
    """exp of the mean loss of every token but the first of its window."""
    losses = [
        F.cross_entropy(model(input_ids=row[None], use_cache=False).logits[0, :-1].float(), row[1:]) for row in tokens
    ]
    return math.exp(float(torch.stack(losses).mean()))


def ratio(model: nn.Module, percent: float) -> float:
    """Dense parameters / slim parameters where so many per cent of those outside the embeddings are gone."""
    total = sum(p.numel() for p in model.parameters())
    embeddings = sum(m.weight.numel() for m in model.modules() if isinstance(m, nn.Embedding))
    return total / (total - percent / 100 * (total - embeddings))


def outside(model: nn.Module) -> int:
    """Parameters outside the embeddings."""
    count = sum(p.numel() for p in model.parameters())
    return count - sum(m.weight.numel() for m in model.modules() if isinstance(m, nn.Embedding))


def cells(model: nn.Module, start: Start, fewer: list[float], folder: Path | None) -> Iterator[tuple]:
    """Every percentage pruned by ldrf, then the same neurons cut without repair; all of them share one survey.

    Runs that were killed go on from their journals in ``folder``.
    """
    for percent in sorted(fewer):
        own = None if folder is None else folder / f"{percent:g}"
        journal = open_journal(own, own is not None and unfinished(own))
        run = begin_run(start, read_target(params=round(ratio(model, percent), 6)), journal)
        result = pruned(run)
        yield percent, "ldrf", result.model
        yield percent, "plain", plainly_cut(model, run, run.learned(stage_1))


def plainly_cut(model: nn.Module, run: Run, findings: Findings) -> nn.Module:
    """A copy of the model with the neurons that ldrf keeps, whose weights stay as they were."""
    kept = {
        unit.name: findings.removals[unit.name].kept(width)
        for unit in run.network.units
        if (width := findings.plan.widths[unit.name]) < unit.width
    }
    copied = copy.deepcopy(model)
    cut_plainly(copied, tuple(unit for unit in run.network.units if unit.name in kept), kept)
    return copied


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("texts", type=Path)
    parser.add_argument("--windows", type=int, default=64)
    parser.add_argument("--judged", type=int, default=24)
    parser.add_argument("--fewer", type=float, nargs="+", default=[20, 25, 30])
    parser.add_argument("--chunk", type=int, default=4, help="windows at a time: each has 512 x 49,152 outputs")
    parser.add_argument("--solver", default="closed-form")
    parser.add_argument("--allocation")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--joint-steps", type=int, default=0)
    parser.add_argument("--metric", default="gradient")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--journals", type=Path, help="a folder in which runs that were killed go on")
    options = parser.parse_args()
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    allocation = options.allocation or "default"
    name = f"{options.model.stem}, {options.windows} windows, {options.solver}, {allocation}, {options.judged} judged"
    found = known.setdefault(name, {})
    fewer = [percent for percent in options.fewer if not {"ldrf", "plain"} <= found.get(f"{percent:g}", {}).keys()]
    if not fewer:
        return
    model, tokenizer = read_model(options.model)
    judged = windows(tokenizer, options.texts / "test.txt", options.judged)
    given = windows(tokenizer, options.texts / "valid.txt", options.windows)
    batches = [{"input_ids": rows} for rows in given.split(options.chunk)]
    if "dense" not in found:
        found["dense"] = {"perplexity": round(perplexity(model, judged), 3)}
        print(found["dense"], flush=True)
    begun = time.process_time()
    start = read_start(model, batches, (), "ldrf", settings(options), several=True)
    found["trace"] = {"cpu_seconds": round(time.process_time() - begun)}
    begun = time.process_time()
    for percent, method, slim in cells(model, start, fewer, options.journals):
        seconds = time.process_time() - begun
        row = {
            "fewer": round(100 * (1 - outside(slim) / outside(model)), 2),
            "perplexity": round(perplexity(slim, judged), 3),
            "cpu_seconds": round(seconds),
            "peak_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
        }
        begun = time.process_time()
        found.setdefault(f"{percent:g}", {})[method] = row
        print(percent, method, json.dumps(row), flush=True)
        RESULTS.write_text(json.dumps(known, indent=1) + "\n")


def settings(options: argparse.Namespace) -> ldrf.PruneConfig:
    """The settings of the runs that the command line names."""
    return ldrf.PruneConfig(
        solver=options.solver,
        allocation=options.allocation,
        steps=options.steps,
        joint_steps=options.joint_steps,
        metric=options.metric,
        precision=options.precision,
        chunk=options.chunk,
    )


if __name__ == "__main__":
    main()
