"""``ldrf inspect``: what of a model can be pruned, what hangs together, and why the rest cannot."""

from typing import Any

import torch
from torch import nn

import ldrf
from ldrf.cli.arguments.inspect import Inspect
from ldrf.cli.models import ZOO, build, open_model
from ldrf.cli.output import Report
from ldrf.data.sources import open_data
from ldrf.runtime.device import find_device

UNTRAINED = "The weights are random here: how far units can be cut, and the largest speedup, depend on --weights."


def run(arguments: Inspect) -> Report:
    """Inspect the model and show the table."""
    untrained = _is_untrained(arguments)
    if untrained:
        model = build(arguments.model).eval()  # weights of libraries are not loaded just to look
        model = model.to(find_device(arguments.device))
    else:
        named = open_model(arguments.model, arguments.weights, arguments.architecture, arguments.device)
        model = named.model
    batch = _batch(arguments, model)
    config = ldrf.PruneConfig(coupled=True) if arguments.coupled else ldrf.PruneConfig()
    deployment = arguments.deployment if arguments.time else None
    parts = None if arguments.parts is None else [part.strip() for part in arguments.parts.split(",")]
    inspection = ldrf.inspect(model, [batch], parts=parts, config=config, deployment=deployment)
    return Report(inspection.as_dict(), [str(inspection), *([UNTRAINED] if untrained else [])])


def _is_untrained(arguments: Inspect) -> bool:
    """Whether the model is named without weights, and none are bundled."""
    name = arguments.model
    by_name = name in set(ZOO) - {"vgg9"} or name.startswith(("torchvision:", "timm:"))
    return by_name and arguments.weights is None and arguments.architecture is None


def _batch(arguments: Inspect, model: nn.Module) -> Any:
    """Images of the data, or two random ones of the shape given or the model's usual shape."""
    if arguments.data:
        return next(iter(open_data(arguments.data, "train").take(4)))
    size = arguments.sizes()
    if size is None:
        small = arguments.model in ZOO or not arguments.model.startswith(("torchvision:", "timm:"))
        stated = getattr(model, "default_cfg", None) or {}
        size = stated.get("input_size", (3, 32, 32) if small else (3, 224, 224))
    return torch.randn(2, *size)
