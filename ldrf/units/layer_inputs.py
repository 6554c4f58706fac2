"""What each layer of a cut model reads, compared with what it reads in the traced graph.

Outputs can hide that a model's code reads the wrong channels, and so can a ReLU that lets nothing through. So the
inputs of layers are compared, also in a randomised copy of the model, in which no channel is zero or like another.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ldrf.tracing.operations import source_of
from ldrf.tracing.trace import Trace

TOLERANCE = 1e-2  # of the largest value: other channels differ by far more, rounding by far less

Noted = Mapping[str, list[Tensor]]


@torch.no_grad()
def randomised(model: nn.Module) -> nn.Module:
    """A copy with other numbers: every layer gives a mean of what it reads, each channel on a scale of its own."""
    copied, generator = copy.deepcopy(model), torch.Generator().manual_seed(0)

    def between(low: float, high: float, shape: Sequence[int]) -> Tensor:
        return low + (high - low) * torch.rand(shape, generator=generator)

    for tensor in copied.parameters():
        if tensor.is_floating_point() and tensor.ndim and tensor.numel():
            numbers = between(0.5, 1.5, tensor.shape)
            scale = between(0.5, 1.5, (len(tensor), *[1] * (tensor.ndim - 1)))
            tensor.copy_(numbers * scale / tensor[0].numel() if tensor.ndim > 1 else numbers)
    for module in copied.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is not None:
            module.running_mean.copy_(between(0.0, 0.1, module.running_mean.shape))
            module.running_var.copy_(between(0.5, 1.5, module.running_mean.shape))  # pyright: ignore
    return copied


@contextmanager
def noted_inputs(model: nn.Module | None, names: Iterable[str]) -> Iterator[Noted]:
    """Copies of what the named modules of ``model`` are called with within."""
    noted: dict[str, list[Tensor]] = {name: [] for name in names}
    own = dict(model.named_modules()) if model is not None else {}

    def noting(name: str) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        def note(_: nn.Module, args: tuple[Any, ...]) -> None:
            noted[name] += [args[0].detach().clone()] if args and isinstance(args[0], Tensor) else []

        return note

    hooks = [own[name].register_forward_pre_hook(noting(name)) for name in noted if name in own]
    try:
        yield noted
    finally:
        for hook in hooks:
            hook.remove()


def fed_wrongly(trace: Trace, noted: Noted, values: Mapping[str, Any]) -> frozenset[str]:
    """Names of layers that were called once, with something else than the graph's value of that shape."""
    wrong: set[str] = set()
    for layer in trace.layers:
        given, value = noted.get(layer.name, []), values.get(source_of(trace.node(layer.node)))
        if len(given) == 1 and isinstance(value, Tensor) and given[0].shape == value.shape and value.numel():
            apart = (given[0] - value.to(given[0].device)).abs().nan_to_num(nan=0.0, posinf=0.0).max()
            if float(apart) > TOLERANCE * float(value.abs().nan_to_num(posinf=0.0).max()) + 1e-6:
                wrong.add(layer.name)
    return frozenset(wrong)
