"""Perplexity of a small language model before fine-tuning, pruned and plainly cut: kept in ``language.json``.

``python benchmarks/language.py FILE.gguf TEXTS [--windows 64] [--judged 24] [--fewer 20 25 30]`` takes a Llama in a
gguf file, such as SmolLM2-135M-Instruct, and a folder with ``valid.txt`` (to calibrate) and ``test.txt`` (to judge),
such as WikiText-2. Windows have 512 tokens. A cell says how many per cent of the parameters outside the
embeddings are gone. Cells that are in the file are passed over. Packages ``gguf``
and ``accelerate`` are needed to read the model.
"""

import argparse
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


def cells(model: nn.Module, batches: list[Any], fewer: list[float], settings: dict[str, Any]) -> Iterator[tuple]:
    """Every percentage pruned by ldrf, then cut to the same widths without repair."""
    config = ldrf.PruneConfig(**settings)
    asked = {round(ratio(model, percent), 6): percent for percent in fewer}
    start = time.perf_counter()
    for point in ldrf.sweep(model, batches, params=list(asked), config=config):
        if point.result is None:
            print(point.name, point.reason)
            continue
        percent = asked[point.result.target["params"]]
        yield percent, "ldrf", point.result, time.perf_counter() - start
        start = time.perf_counter()
        cut = ldrf.PruneConfig(**{**settings, "solver": "none", "joint_steps": 0})
        plain = ldrf.prune(model, batches, widths=point.result.widths, config=cut)
        yield percent, "plain", plain, time.perf_counter() - start
        start = time.perf_counter()


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
    settings = {"solver": options.solver, "allocation": options.allocation, "steps": options.steps}
    for percent, method, result, seconds in cells(model, batches, fewer, {**settings, "chunk": options.chunk}):
        row = {
            "fewer": round(100 * (1 - outside(result.model) / outside(model)), 2),
            "perplexity": round(perplexity(result.model, judged), 3),
            "seconds": round(seconds),
            "stages": {stage: round(took, 1) for stage, took in result.seconds.items()},
            "peak_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
        }
        found.setdefault(f"{percent:g}", {})[method] = row
        print(percent, method, json.dumps(row), flush=True)
        RESULTS.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
