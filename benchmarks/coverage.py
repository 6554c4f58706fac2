"""Every architecture at hand, pruned with random weights and checked: one JSON line a model.

``python benchmarks/coverage.py [GLOB ...]`` runs the models whose names match and are not in ``coverage.jsonl`` yet
(``--again``: also those that are), each in a process of its own with a limit of processor time. ``--tool
torch-pruning`` does the same with Torch-Pruning; ``--page`` writes both as a page of the docs.
A model is *ok* when it was pruned and every check held, *refused* when ldrf said why it cannot, *hang* when it was too
slow, *failed* otherwise.
"""

import argparse
import copy
import json
import multiprocessing
import resource
import signal
import time
import traceback
import warnings
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from catalogue import catalogue
from coverage_page import FILES, read_results, write_page
from coverage_rival import examine as examine_with_torch_pruning
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import ldrf
from ldrf.calibration.network import Network, read_network, with_coupled
from ldrf.cli.vision import import_vision
from ldrf.errors import LdrfError
from ldrf.inputs import Inputs
from ldrf.inspection import inspect_network
from ldrf.recomposition.recompose import output_statistics, recompose
from ldrf.tracing.choices import Choices
from ldrf.tracing.export import export_program

SPEEDUP = 1.5
WAITING = 20  # times the limit of processor time, after which a process that waits for nothing hangs, too
CONFIG = ldrf.PruneConfig(solver="closed-form", selection="weight", allocation="uniform", metric="output", chunk=2)


def examine(name: str) -> dict[str, Any]:
    """Prune one model and check the result."""
    torch.manual_seed(0)
    model, batch = catalogue()[name]()
    model = model.eval()
    start = time.process_time()
    try:
        network = read_network(model, [batch], (), CONFIG)
        return {"model": name, **_pruned(network, time.process_time() - start)}
    except LdrfError as problem:
        return {"model": name, "status": "refused", "reason": str(problem)}


def _pruned(network: Network, traced: float) -> dict[str, Any]:
    inner = found = inspect_network(network, CONFIG)
    whole = inspect_network(with_coupled(network), CONFIG)
    if inner.speedup < SPEEDUP:
        found = whole
    target = min(SPEEDUP, 1 + 0.9 * (found.speedup - 1))
    facts = {
        "units": len(found.units),
        "coupled": sum(u.coupled for u in found.units),
        "layers": len(network.trace.layers),
        "calls": len(network.trace.nodes),
        "share": round(whole.share, 3),
        "inner_share": round(inner.share, 3),
        "reachable": round(found.speedup, 2),
        "trace_seconds": round(traced, 1),
    }
    if not found.units or target < 1.001:
        reasons = {s.reason for s in network.skipped}
        return {"status": "refused", "reason": "; ".join(sorted(reasons)[:3]), **facts}
    start = time.process_time()
    # One damping, not the best of three: which it is matters to accuracy alone.
    with (
        patch("ldrf.run.read_network", lambda *_: network),
        patch("ldrf.reconstruction.refitting.DAMPINGS", (1,)),
    ):
        result = ldrf.prune(network.model, [], speedup=target, config=CONFIG)
    facts |= {"speedup": round(result.speedup, 3), "prune_seconds": round(time.process_time() - start, 1)}
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
    choices = Choices()
    with choices.noted():
        wanted = _outputs(network.model, network.example)
    with choices.followed():
        pairs = zip(_outputs(restored, network.example), wanted, strict=True)
    return all(float((a - b).abs().max()) <= 1e-4 * float(b.abs().max()) + 1e-7 for a, b in pairs)


def _other_batch(network: Network, result: ldrf.PruneResult) -> bool:
    inputs = network.example.map(lambda t: torch.cat([t, t[:1]]))
    pairs = zip(_outputs(result.model, inputs), _outputs(network.model, inputs), strict=True)
    return all(a.shape == b.shape for a, b in pairs)


def _exports(network: Network, result: ldrf.PruneResult) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        export_program(result.model, network.example)
    return True


def _trains(network: Network, result: ldrf.PruneResult) -> bool:
    model = copy.deepcopy(result.model)
    before = [p.detach().clone() for p in model.parameters()]
    outputs = [t for t in tree_leaves(network.example.call(model)) if isinstance(t, Tensor) and t.requires_grad]
    sum(((t.float() - 1).square().mean() for t in outputs), torch.zeros(())).backward()
    torch.optim.SGD(model.parameters(), 1e-3).step()
    return any(not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def _is_faster(network: Network, result: ldrf.PruneResult) -> bool:
    """As much faster as it was asked to be, but for the last neuron of parts that are not all equal."""
    return result.speedup > 1 + 0.95 * (result.target["speedup"] - 1)


Check = Callable[[Network, ldrf.PruneResult], bool]
CHECKS: dict[str, Check] = {
    "full width is not the dense model": _full_width_is_dense,
    "wrong shapes at another batch size": _other_batch,
    "does not export": _exports,
    "does not train": _trains,
    "not as fast as asked": _is_faster,
}


def in_its_own_process(tool: str, name: str, seconds: float) -> dict[str, Any]:
    """Examine a model in a process of its own; slow, killed and crashed ones fail."""
    context = multiprocessing.get_context("fork")  # what is imported already need not be imported again
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(tool, name, seconds, sender))
    process.start()
    sender.close()
    try:
        return receiver.recv() if receiver.poll(seconds * WAITING) else _failed(name, "waits for nothing", "hang")
    except EOFError:
        process.join()
        if process.exitcode in (-signal.SIGXCPU, -signal.SIGKILL):
            return _failed(name, f"took more than {seconds:g} seconds", "hang")
        return _failed(name, f"its process ended with code {process.exitcode}")
    finally:
        process.kill()
        process.join()


def _answer(tool: str, name: str, seconds: float, sender: Any) -> None:
    limit = int(seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))  # of processor time: other processes do not count
    warnings.simplefilter("ignore")
    try:
        report = TOOLS[tool](name)
    except Exception as problem:
        place = traceback.extract_tb(problem.__traceback__)[-1]
        report = _failed(name, f"{type(problem).__name__}: {problem} ({Path(place.filename).name}:{place.lineno})")
    sender.send(report)


def _failed(name: str, reason: str, status: str = "failed") -> dict[str, Any]:
    return {"model": name, "status": status, "reason": " ".join(reason.split())[:300]}


TOOLS: dict[str, Callable[[str], dict[str, Any]]] = {"ldrf": examine, "torch-pruning": examine_with_torch_pruning}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("globs", nargs="*", default=["*"])
    parser.add_argument("--tool", choices=TOOLS, default="ldrf")
    parser.add_argument("--seconds", type=float, default=240, help="of processor time a model may take")
    parser.add_argument("--results", type=Path, help="the file of JSON lines, if not that beside this script")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--page", action="store_true", help="write the docs' page from the files beside this script")
    options = parser.parse_args()
    if options.page:
        return write_page()
    import_vision("timm")
    results = options.results or FILES[options.tool]
    names = dict.fromkeys(name for glob in options.globs for name in catalogue() if fnmatchcase(name, glob))
    for name in names:
        if options.again or name not in read_results(results):
            row = in_its_own_process(options.tool, name, options.seconds)
            with results.open("a") as file:  # a later line stands for an earlier one of the same model
                file.write(json.dumps(row) + "\n")
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
