"""A trained sentence encoder pruned by its inner widths and by its residual stream, judged on other sentences.

``python benchmarks/transformer.py FOLDER`` takes a folder with a BERT in Hugging Face's form, such as all-MiniLM-L6-v2.
Sentences are those of Python's own documentation. Only the closed form is used: it shows what solving all readers
anew is worth, against cutting alone.
"""

import argparse
import ast
import json
import random
import sysconfig
from pathlib import Path

import torch
from torch import Tensor, nn

import ldrf
from ldrf.calibration.network import read_network
from ldrf.cli.vision import import_vision

LENGTH, CALIBRATED, JUDGED = 40, 512, 400
CONFIG = ldrf.PruneConfig(solver="closed-form", joint_steps=0, coupled=True)


class Encoder(nn.Module):
    """Words to one vector a sentence: the mean of its last states, behind a linear layer, so that the stream ends."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        import_vision("torchvision")  # which transformers looks for
        from transformers import AutoModel

        self.bert = AutoModel.from_pretrained(folder, add_pooling_layer=False)
        width = self.bert.config.hidden_size
        self.head = nn.Linear(width, width, bias=False)
        nn.init.orthogonal_(self.head.weight, generator=torch.Generator().manual_seed(0))

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        states = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        seen = attention_mask.unsqueeze(-1).to(states.dtype)
        return self.head((states * seen).sum(1) / seen.sum(1))


def sentences() -> list[str]:
    """Sentences of the standard library's docstrings, shuffled."""
    found: set[str] = set()
    for path in Path(sysconfig.get_paths()["stdlib"]).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
                words = " ".join((ast.get_docstring(node) or "").split())
                found.update(s.strip() for s in words.split(". ") if 40 < len(s) < 300)
    return random.Random(0).sample(sorted(found), len(found))


def tokens(folder: str, texts: list[str]) -> dict[str, Tensor]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    made = tokenizer(texts, padding="max_length", truncation=True, max_length=LENGTH, return_tensors="pt")
    return {name: made[name] for name in ("input_ids", "attention_mask")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    folder = parser.parse_args().folder
    texts = sentences()
    batches = [tokens(folder, texts[i : i + 64]) for i in range(0, CALIBRATED, 64)]
    other = tokens(folder, texts[CALIBRATED : CALIBRATED + JUDGED])
    model = Encoder(folder).eval()
    with torch.no_grad():
        wanted = model(**other)

    def error(slim: nn.Module) -> float:
        with torch.no_grad():
            return float((slim(**other) - wanted).square().sum() / (wanted - wanted.mean(0)).square().sum())

    network = read_network(model, batches, (), CONFIG)
    stream = next(unit for unit in network.units if unit.coupled)
    inner = {unit.name: round(2 / 3 * unit.width) for unit in network.units if not unit.coupled}
    for cut, widths in (("inner widths", inner), ("stream", {stream.name: round(5 / 6 * stream.width)})):
        for method in ("ldrf", "li2017"):  # the second only cuts
            result = ldrf.prune(model, batches, widths=widths, config=CONFIG, method=method)
            row = {"cut": cut, "method": method, "speedup": round(result.speedup, 3)}
            print(json.dumps({**row, "error": round(error(result.model), 4)}), flush=True)


if __name__ == "__main__":
    main()
