"""How far a slim network's outputs and embeddings are from the dense one's: the loss of fine-tuning without labels."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ldrf.algebra.squared_gap import squared_gap
from ldrf.inputs import Inputs
from ldrf.runtime.device import exact, exact_device
from ldrf.runtime.processes import sum_over

FAR = 4.0  # times the median distance of all blocks, beyond which the values of a block are others than the dense ones


@torch.no_grad()
def meeting_points(dense: nn.Module, slim: nn.Module, inputs: Inputs) -> tuple[str, ...]:
    """Names of the blocks inside both networks whose outputs still have the same shape, such as a ResNet's.

    A plain chain has no such blocks: there they are its layers that keep their width. Layers in front of a norm are
    left out, as what they give is scaled anew there.
    """
    modules = {name: module for name, module in slim.named_modules() if name and _has(dense, name)}
    blocks = [name for name, module in modules.items() if any(module.children())]
    points = _of_one_shape(dense, slim, inputs, blocks)
    if points:
        return points
    scaled = _before_norms(slim, inputs)
    layers = [name for name, module in modules.items() if _is_layer(module) and name not in scaled]
    return _of_one_shape(dense, slim, inputs, layers)


@torch.no_grad()
def near_points(dense: nn.Module, slim: nn.Module, points: Sequence[str], inputs: Inputs) -> tuple[str, ...]:
    """Those of the points whose values still mean the same in both networks, as their distances on the inputs tell.

    A layer behind others that were cut is solved anew even if it keeps its width, and its neurons may be others then.
    And a branch of a block makes up for what the stream beside it has lost: the block is nearer than its branch.
    """
    with taps(slim, points) as mine, taps(dense, points) as theirs:
        inputs.call(slim)
        inputs.call(dense)
    far = {name: float(_relative(mine[name], theirs[name], variance)) for name in points}
    most = max(1.0, FAR * median(far.values())) if far else 0.0  # at 1 even the mean of the dense values is as near
    return tuple(name for name in points if far[name] <= most and far[name] <= _around(name, far))


def _around(name: str, far: Mapping[str, float]) -> float:
    """The distance of the next block around a block."""
    outer = [other for other in far if name.startswith(f"{other}.")]
    return far[max(outer, key=len)] if outer else math.inf


def _of_one_shape(dense: nn.Module, slim: nn.Module, inputs: Inputs, names: Sequence[str]) -> tuple[str, ...]:
    """Those of the modules that give the same shape in both networks, and not the networks' outputs."""
    with taps(dense, names) as theirs, taps(slim, names) as mine:
        final = {id(t) for t in pytree.tree_leaves(inputs.call(slim))}
        inputs.call(dense)
    points: dict[int, str] = {}  # a block and the last block inside it give one and the same tensor
    for name in names:
        one, other = mine.get(name), theirs.get(name)
        if not (isinstance(one, Tensor) and isinstance(other, Tensor)) or id(one) in final:
            continue
        if one.shape == other.shape and one.ndim > 1 and one.is_floating_point():
            points.setdefault(id(one), name)
    return tuple(points.values())


def _before_norms(model: nn.Module, inputs: Inputs) -> set[str]:
    """Modules whose output a BatchNorm reads."""
    names = [name for name, _ in model.named_modules() if name]
    read: list[Tensor] = []
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    handles = [norm.register_forward_pre_hook(lambda _m, given: read.append(given[0])) for norm in norms]
    try:
        with taps(model, names) as outputs:
            inputs.call(model)
    finally:
        for handle in handles:
            handle.remove()
    scaled = {id(tensor) for tensor in read}
    return {name for name, output in outputs.items() if id(output) in scaled}


def _is_layer(module: nn.Module) -> bool:
    """Whether a module has a weight of its own: a convolution, a linear layer, or a norm behind one."""
    return isinstance(getattr(module, "weight", None), Tensor)


def _has(model: nn.Module, name: str) -> bool:
    try:
        model.get_submodule(name)
    except AttributeError:
        return False
    return True


@contextmanager
def taps(model: nn.Module, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """A dict that fills with the outputs of the named modules whenever ``model`` runs."""
    outputs: dict[str, Any] = {}

    def keep(name: str):
        return lambda _module, _inputs, output: outputs.__setitem__(name, output)

    handles = [model.get_submodule(name).register_forward_hook(keep(name)) for name in names]
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()


def variance(values: Tensor) -> Tensor:
    return values.var(correction=0)


def shared_variance(values: Tensor) -> Tensor:
    """The variance over the values of all processes."""
    mean = values.to(exact_device(values.device)).mean(dtype=torch.float64)
    squares = values.numel() * (exact(variance(values)) + mean.square())
    number, total, squares = sum_over(
        torch.stack([torch.full_like(mean, values.numel()), values.numel() * mean, squares])
    )
    return ((squares - total.square() / number) / number).to(values)


# How the variance of the dense values is found, to which distances are relative.
Variance = Callable[[Tensor], Tensor]


def output_distance(mine: Any, theirs: Any, spread: Variance = variance) -> Tensor:
    """The relative squared distance of the outputs, of a classifier's before its softmax.

    A network is sure of the images it was trained on: their probabilities say little, their scores differ all the same.
    """
    return _mean([_relative(a, b, spread) for a, b in zip(_floats(mine), _floats(theirs), strict=True)])


def embedding_distance(mine: dict[str, Any], theirs: dict[str, Any], spread: Variance = variance) -> Tensor:
    """The sum of the relative squared distances at all meeting points, so that each counts as the outputs do.

    They hold every block to its own part, which takes far fewer steps than finding it from the outputs.
    """
    return sum((_relative(mine[name], theirs[name], spread) for name in theirs), torch.zeros(()))


def _floats(outputs: Any) -> list[Tensor]:
    return [t for t in pytree.tree_leaves(outputs) if isinstance(t, Tensor) and t.is_floating_point()]


def _relative(mine: Tensor, theirs: Tensor, spread: Variance) -> Tensor:
    """In float32 whatever precision they were computed in."""
    theirs = theirs.float()
    return squared_gap(mine, theirs) / (theirs.numel() * spread(theirs).clamp_min(1e-12))


def _mean(parts: list[Tensor]) -> Tensor:
    return torch.stack(parts).mean() if parts else torch.zeros(())
