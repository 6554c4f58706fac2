"""Torch-Pruning on the models of the sweep, as its README says and without code for any of them."""

import time
from typing import Any

import torch
from catalogue import catalogue
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ldrf.inputs import Inputs, read_inputs
from ldrf.tracing.counting import count_macs

RATIO = 0.5  # of every layer's channels


def examine(name: str) -> dict[str, Any]:
    """Prune one model at half its channels; it is to run at another batch size, give the same shapes, and be faster."""
    import torch_pruning as tp  # pyright: ignore[reportMissingImports]

    torch.manual_seed(0)
    model, batch = catalogue()[name]()
    model = model.eval()
    inputs = read_inputs(model, batch)
    few = inputs.map(lambda t: t[:2])
    wanted, macs = _shapes(model, few), count_macs(model, few)
    start = time.process_time()
    example: Any = few.kwargs or few.args
    score = tp.importance.GroupMagnitudeImportance(p=2)
    ignored = output_layers(model, wanted)
    pruner = tp.pruner.BasePruner(model, example, importance=score, pruning_ratio=RATIO, ignored_layers=ignored)
    pruner.step()
    taken = round(time.process_time() - start, 1)
    speedup = macs / count_macs(model, few)
    other = inputs.map(lambda t: t[:1])
    found = [(1, *shape[1:]) for shape in wanted]
    wrong = "other shapes" if _shapes(model, other) != found else "nothing was cut" if speedup < 1.001 else ""
    facts = {"speedup": round(speedup, 3), "prune_seconds": taken}
    return {"model": name, "status": "failed" if wrong else "ok", "reason": wrong, **facts}


def output_layers(model: nn.Module, shapes: list[tuple[int, ...]]) -> list[nn.Module]:
    """Layers with as many outputs as the model: what its README says to leave alone."""
    channels, features = {shape[1] for shape in shapes if len(shape) > 2}, {shape[-1] for shape in shapes}
    linears = [m for m in model.modules() if isinstance(m, nn.Linear) and m.out_features in features]
    convolutions = [m for m in model.modules() if isinstance(m, nn.modules.conv._ConvNd) and m.out_channels in channels]
    return [*linears, *convolutions]


@torch.no_grad()
def _shapes(model: nn.Module, inputs: Inputs) -> list[tuple[int, ...]]:
    return [tuple(t.shape) for t in tree_leaves(inputs.call(model)) if isinstance(t, Tensor) and t.ndim]
