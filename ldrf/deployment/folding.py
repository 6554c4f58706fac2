"""BatchNorms folded into the convolutions before them, as every runtime but eager torch does by itself."""

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval
from torch.utils import _pytree as pytree

from ldrf.inputs import Inputs

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
SAME = 1e-3  # how far outputs may move, relative to the largest


@torch.no_grad()
def folded_copy(model: nn.Module, inputs: Inputs) -> nn.Module:
    """A copy in eval mode whose norms right behind a convolution are folded; else a plain copy."""
    copied = copy.deepcopy(model).eval().requires_grad_(False)
    pairs = _pairs(copied, inputs)
    if not pairs:
        return copied
    folded = copy.deepcopy(copied)
    for conv, norm in pairs:
        _replace(folded, conv, fuse_conv_bn_eval(folded.get_submodule(conv), folded.get_submodule(norm)))  # pyright: ignore
        _replace(folded, norm, nn.Identity())
    return folded if _same(inputs.call(copied), inputs.call(folded)) else copied


def _replace(model: nn.Module, name: str, module: nn.Module) -> None:
    path, _, leaf = name.rpartition(".")
    setattr(model.get_submodule(path), leaf, module)


def _pairs(model: nn.Module, inputs: Inputs) -> list[tuple[str, str]]:
    """Convolutions and the norms that read their very outputs, each called once."""
    made: list[tuple[str, Any]] = []
    read: list[tuple[str, Any]] = []
    handles = []
    for name, module in model.named_modules():
        if isinstance(module, CONVOLUTIONS):
            handles.append(module.register_forward_hook(lambda _m, _x, y, name=name: made.append((name, y))))
        elif isinstance(module, NORMS):
            handles.append(module.register_forward_hook(lambda _m, x, _y, name=name: read.append((name, x[0]))))
    try:
        inputs.call(model)
    finally:
        for handle in handles:
            handle.remove()
    once = {name for name, _ in made if sum(n == name for n, _ in made) == 1}
    once |= {name for name, _ in read if sum(n == name for n, _ in read) == 1}
    pairs = [(conv, norm) for norm, x in read for conv, y in made if x is y]
    return [(conv, norm) for conv, norm in pairs if conv in once and norm in once]


def _same(one: Any, other: Any) -> bool:
    pairs = zip(pytree.tree_leaves(one), pytree.tree_leaves(other), strict=True)
    return all(
        not isinstance(a, Tensor) or float((a - b).abs().max()) <= SAME * max(float(a.abs().max()), 1e-6)
        for a, b in pairs
    )
