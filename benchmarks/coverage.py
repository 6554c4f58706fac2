"""Every architecture at hand, pruned with random weights and checked: one JSON line a model in ``coverage.jsonl``.

``python benchmarks/coverage.py [GLOB ...]`` runs the models whose names match and are not in the file yet (``--again``:
also those that are), each in a process of its own with a time limit; ``--table`` prints the file as a table.
A model is *ok* when it was pruned and every check held, *refused* when ldrf said why it cannot, *failed* otherwise.
"""

import argparse
import copy
import json
import multiprocessing
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from homemade import MODELS as HOMEMADE
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import ldrf
from ldrf.cli.vision import import_vision
from ldrf.errors import LdrfError
from ldrf.inputs import Inputs
from ldrf.inspection import inspect_network
from ldrf.network import Network, read_network, with_coupled
from ldrf.recomposition import output_statistics, recompose

RESULTS = Path(__file__).with_name("coverage.jsonl")
NAMES = Path(__file__).with_name("coverage_models.txt")
SPEEDUP = 1.5
CONFIG = ldrf.PruneConfig(solver="closed-form", selection="weight", allocation="uniform", chunk=2)
Made = tuple[nn.Module, Any]


def catalogue() -> dict[str, Callable[[], Made]]:
    """Every model by name, as a function that makes it and a batch for it."""
    makers = {"torchvision": _torchvision, "segmentation": _segmentation, "detection": _backbone, "timm": _timm}
    found: dict[str, Callable[[], Made]] = {f"home/{n}": lambda n=n: _homemade(n) for n in HOMEMADE}
    for name in NAMES.read_text().split():
        library, _, rest = name.partition("/")
        found[name] = lambda make=makers[library], rest=rest: make(rest)
    return found | {f"hf/{n}": lambda n=n: _huggingface(n) for n in HUGGINGFACE}


def _images(rows: int, size: int, channels: int = 3) -> Tensor:
    return torch.randn(rows, channels, size, size)


def _homemade(name: str) -> Made:
    kind, shape = HOMEMADE[name]
    return kind(), torch.randint(0, 100, (8, *shape)) if name == "language" else torch.randn(8, *shape)


def _torchvision(name: str) -> Made:
    models = import_vision("torchvision").models
    extra = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    size = 256 if name == "swin_v2_t" else 224 if name in ("vit_b_16", "swin_t", "maxvit_t") else 96
    return models.get_model(name, weights=None, **extra), _images(3, size)


def _segmentation(name: str) -> Made:
    models = import_vision("torchvision").models.segmentation
    return getattr(models, name)(weights=None, weights_backbone=None), _images(3, 96)


def _backbone(name: str) -> Made:
    """The network of a detector that works on whole images: everything before boxes are proposed."""
    models = import_vision("torchvision").models.detection
    size = 300 if name == "ssd300_vgg16" else 160
    return getattr(models, name)(weights=None, weights_backbone=None).backbone, _images(3, size)


def _timm(name: str) -> Made:
    model = import_vision("timm").create_model(name, pretrained=False)
    stated = model.default_cfg
    size = stated["input_size"][-1]
    return model, _images(3, size if stated.get("fixed_input_size") else min(size, 96))


def _huggingface(name: str) -> Made:
    import_vision("torchvision")
    return HUGGINGFACE[name]()


def _hf(kind: str, config: str, batch: Callable[[], Any], **options: Any) -> Callable[[], Made]:
    def made() -> Made:
        import transformers

        model = getattr(transformers, kind)(getattr(transformers, config)(**options))
        return model, batch()

    return made


def _words(rows: int = 6, length: int = 24) -> dict[str, Tensor]:
    return {
        "input_ids": torch.randint(3, 90, (rows, length)),
        "attention_mask": torch.ones(rows, length, dtype=torch.long),
    }


def _pixels(rows: int = 4, size: int = 64) -> dict[str, Tensor]:
    return {"pixel_values": _images(rows, size)}


SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
WORDS = {**SMALL, "vocab_size": 100}
LLAMA = {**WORDS, "num_key_value_heads": 2, "use_cache": False}
HUGGINGFACE: dict[str, Callable[[], Made]] = {
    "resnet": _hf("ResNetForImageClassification", "ResNetConfig", _pixels, depths=[1, 1, 1, 1]),
    "vit": _hf("ViTForImageClassification", "ViTConfig", _pixels, image_size=64, **SMALL),
    "deit": _hf("DeiTForImageClassification", "DeiTConfig", _pixels, image_size=64, **SMALL),
    "swin": _hf("SwinForImageClassification", "SwinConfig", _pixels, image_size=64, embed_dim=32, depths=[1, 1],
                num_heads=[2, 4], window_size=4),
    "convnext": _hf("ConvNextForImageClassification", "ConvNextConfig", _pixels, depths=[1, 1, 1, 1],
                    hidden_sizes=[32, 48, 64, 80]),
    "segformer": _hf("SegformerForSemanticSegmentation", "SegformerConfig", _pixels, depths=[1, 1, 1, 1]),
    "bert": _hf("BertForSequenceClassification", "BertConfig", _words, **WORDS),
    "distilbert": _hf("DistilBertForSequenceClassification", "DistilBertConfig", _words, dim=64, n_layers=2, n_heads=4,
                      hidden_dim=128, vocab_size=100),
    "roberta": _hf("RobertaForSequenceClassification", "RobertaConfig", _words, **WORDS),
    "gpt2": _hf("GPT2LMHeadModel", "GPT2Config", _words, n_embd=64, n_layer=2, n_head=4, vocab_size=100,
                use_cache=False),
    "llama": _hf("LlamaForCausalLM", "LlamaConfig", _words, **LLAMA),
    "qwen2": _hf("Qwen2ForCausalLM", "Qwen2Config", _words, **LLAMA),
    "qwen3": _hf("Qwen3ForCausalLM", "Qwen3Config", _words, head_dim=16, **LLAMA),
    "t5-encoder": _hf("T5EncoderModel", "T5Config", _words, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4,
                      vocab_size=100),
    "whisper-encoder": lambda: _whisper(),
    "clip": _hf("CLIPModel", "CLIPConfig", lambda: {**_words(4, 16), **_pixels(4)},
                text_config={**WORDS, "eos_token_id": 2},
                vision_config={**SMALL, "image_size": 64, "patch_size": 16}),
}  # fmt: skip


def _whisper() -> Made:
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = WhisperConfig(d_model=64, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=128,
                           max_source_positions=50, num_mel_bins=20)  # fmt: skip
    return WhisperEncoder(config), {"input_features": torch.randn(4, 20, 100)}


def examine(name: str) -> dict[str, Any]:
    """Prune one model and check the result."""
    torch.manual_seed(0)
    model, batch = catalogue()[name]()
    model = model.eval()
    start = time.perf_counter()
    try:
        network = read_network(model, [batch], (), CONFIG)
        traced = time.perf_counter() - start
        report = _pruned(network, traced)
        return {"model": name, **report}
    except LdrfError as problem:
        return {"model": name, "status": "refused", "reason": str(problem), "seconds": time.perf_counter() - start}


def _pruned(network: Network, traced: float) -> dict[str, Any]:
    inner = inspect_network(network, CONFIG)
    found = inner
    if inner.speedup < SPEEDUP and network.coupled:
        found = inspect_network(with_coupled(network), CONFIG)
    target = min(SPEEDUP, 1 + 0.9 * (found.speedup - 1))
    facts = {
        "units": len(found.units),
        "coupled": sum(u.coupled for u in found.units),
        "layers": len(network.trace.layers),
        "calls": len(network.trace.nodes),
        "share": round(found.share, 3),
        "reachable": round(found.speedup, 2),
        "trace_seconds": round(traced, 1),
    }
    if not found.units or target < 1.001:
        reasons = {s.reason for s in network.skipped}
        return {"status": "refused", "reason": "; ".join(sorted(reasons)[:3]), **facts}
    start = time.perf_counter()
    with patch("ldrf.pipeline.read_network", lambda *_: network):
        result = ldrf.prune(network.model, [], speedup=target, config=CONFIG)
    facts |= {"speedup": round(result.speedup, 3), "prune_seconds": round(time.perf_counter() - start, 1)}
    wrong = [what for what, check in CHECKS.items() if not check(network, result)]
    return {"status": "failed" if wrong else "ok", "reason": ", ".join(wrong), **facts}


def _outputs(model: nn.Module, inputs: Inputs) -> list[Tensor]:
    with torch.no_grad():
        return [t for t in tree_leaves(inputs.call(model)) if isinstance(t, Tensor) and t.is_floating_point()]


def _full_width_is_dense(network: Network, result: ldrf.PruneResult) -> bool:
    """Every layer folded and restored at full width computes what the model computes, to 1e-4."""
    whole = {u.name: torch.arange(u.width) for u in network.units}
    nodes = {la.node for la in network.trace.layers if network.trace.called.get(la.weight, 1) == 1}
    statistics = output_statistics(network.trace, network.dense, nodes, network.calibration)
    restored = recompose(network, network.dense, nodes, whole, statistics)
    pairs = zip(_outputs(restored, network.example), _outputs(network.model, network.example), strict=True)
    return all(float((a - b).abs().max()) <= 1e-4 * float(b.abs().max()) + 1e-7 for a, b in pairs)


def _other_batch(network: Network, result: ldrf.PruneResult) -> bool:
    inputs = network.example.map(lambda t: torch.cat([t, t[:1]]))
    pairs = zip(_outputs(result.model, inputs), _outputs(network.model, inputs), strict=True)
    return all(a.shape == b.shape for a, b in pairs)


def _exports(network: Network, result: ldrf.PruneResult) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.export(result.model, network.example.args, network.example.kwargs, strict=False)
    return True


def _trains(network: Network, result: ldrf.PruneResult) -> bool:
    model = copy.deepcopy(result.model)
    before = [p.detach().clone() for p in model.parameters()]
    outputs = [t for t in tree_leaves(network.example.call(model)) if isinstance(t, Tensor) and t.requires_grad]
    sum((t.float().square().mean() for t in outputs), torch.zeros(())).backward()
    torch.optim.SGD(model.parameters(), 1e-3).step()
    return any(not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def _is_faster(network: Network, result: ldrf.PruneResult) -> bool:
    return result.speedup > 1


Check = Callable[[Network, ldrf.PruneResult], bool]
CHECKS: dict[str, Check] = {
    "full width is not the dense model": _full_width_is_dense,
    "wrong shapes at another batch size": _other_batch,
    "does not export": _exports,
    "does not train": _trains,
    "not faster": _is_faster,
}


def in_its_own_process(name: str, seconds: float) -> dict[str, Any]:
    """Examine a model in a process of its own; too slow, killed and crashed ones are failures."""
    context = multiprocessing.get_context("fork")  # what is imported already need not be imported again
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(name, sender))
    process.start()
    sender.close()
    try:
        return receiver.recv() if receiver.poll(seconds) else _failed(name, f"took more than {seconds:g} seconds")
    except EOFError:
        process.join()
        return _failed(name, f"its process ended with code {process.exitcode}")
    finally:
        process.kill()
        process.join()


def _answer(name: str, sender: Any) -> None:
    warnings.simplefilter("ignore")
    try:
        report = examine(name)
    except Exception as problem:
        place = traceback.extract_tb(problem.__traceback__)[-1]
        report = _failed(name, f"{type(problem).__name__}: {problem} ({Path(place.filename).name}:{place.lineno})")
    sender.send(report)


def _failed(name: str, reason: str) -> dict[str, Any]:
    return {"model": name, "status": "failed", "reason": " ".join(reason.split())[:400]}


def read_results(path: Path) -> dict[str, dict[str, Any]]:
    if not path.exists():
        return {}
    rows = (json.loads(line) for line in path.read_text().splitlines() if line.strip())
    return {row["model"]: row for row in rows}


def table(rows: dict[str, dict[str, Any]]) -> Iterator[str]:
    """The results as Markdown, with the totals that count."""
    ok = [r for r in rows.values() if r["status"] == "ok"]
    shares = sorted(r["share"] for r in ok)
    failed, refused = (sum(r["status"] == s for r in rows.values()) for s in ("failed", "refused"))
    median = shares[len(shares) // 2] if shares else 0.0
    yield f"{len(rows)} models: {len(ok)} pruned, {refused} refused, {failed} failed; median prunable MACs {median:.0%}"
    yield ""
    yield "| model | outcome | prunable MACs | units | coupled | largest | reached | trace s | prune s | why |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for name, r in sorted(rows.items()):
        share = f"{r['share']:.0%}" if "share" in r else ""
        cells = [r.get(k, "") for k in ("units", "coupled", "reachable", "speedup", "trace_seconds", "prune_seconds")]
        why = str(r.get("reason", "")).replace("|", "/")
        yield f"| {name} | {r['status']} | {share} | {' | '.join(map(str, cells))} | {why[:160]} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("globs", nargs="*", default=["*"])
    parser.add_argument("--seconds", type=float, default=300, help="after which a model counts as hanging")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the file of JSON lines")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    if options.table:
        print("\n".join(table(read_results(options.results))))
        return
    import_vision("timm")
    names = dict.fromkeys(name for glob in options.globs for name in catalogue() if fnmatchcase(name, glob))
    for name in names:
        if options.again or name not in read_results(options.results):
            row = in_its_own_process(name, options.seconds)
            with options.results.open("a") as file:  # a later line stands for an earlier one of the same model
                file.write(json.dumps(row) + "\n")
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
