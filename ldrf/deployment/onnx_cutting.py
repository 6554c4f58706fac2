"""An exported network cut without exporting it again: only sizes of its constants change."""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from ldrf.units.indices import Left

Masks = dict[str, dict[int, np.ndarray]]  # constant -> dimension -> which of its indices stay


def cut_onnx(model: Any, left: Left, tensors: Mapping[str, Tensor], rows: int) -> Any:
    """A copy of an ONNX model with only those indices of the named weights that are left, for batches of ``rows``.

    Weights go by their name in the torch model, whose ``tensors`` these are, or by their values where they were
    transposed and renamed; the bias of a convolution or linear layer, which the norm behind it was folded into, goes
    with its weight. The caller compares outputs: other constants may hold widths, too.
    """
    import onnx
    from onnx import numpy_helper

    cut = onnx.ModelProto()
    cut.CopyFrom(model)
    masks = _with_biases(cut, _masks(left) | _transposed_masks(cut, left, tensors))
    shapes = {node.input[1] for node in cut.graph.node if node.op_type == "Reshape"}
    for constant in cut.graph.initializer:
        if constant.name in masks:
            array = numpy_helper.to_array(constant)
            for dim, mask in masks[constant.name].items():
                array = array[(slice(None),) * dim + (mask,)]
            constant.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), constant.name))
        elif constant.name in shapes:
            shape = _free_shape(numpy_helper.to_array(constant), rows)
            constant.CopyFrom(numpy_helper.from_array(shape, constant.name))
    del cut.graph.value_info[:]  # the shapes noted there are those of the whole network
    return cut


def _masks(left: Left) -> Masks:
    masks: Masks = {}
    for (name, dim), mask in left.items():
        masks.setdefault(name, {})[dim] = mask
    return masks


def _transposed_masks(model: Any, left: Left, tensors: Mapping[str, Tensor]) -> Masks:
    """Masks of constants that are the transposes of cut weights."""
    from onnx import numpy_helper

    named = _masks(left)
    turned = {_digest(t.T.numpy()): n for n, t in tensors.items() if n in named and t.ndim == 2}
    masks: Masks = {}
    for constant in model.graph.initializer:
        if len(constant.dims) == 2 and constant.name not in named:
            name = turned.get(_digest(numpy_helper.to_array(constant)))
            if name is not None:
                masks[constant.name] = {1 - dim: mask for dim, mask in named[name].items()}
    return masks


def _digest(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def _with_biases(model: Any, masks: Masks) -> Masks:
    """The same, with the biases of cut layers; the groups of grouped convolutions are cut here."""
    for node in model.graph.node:
        weight = node.input[1] if len(node.input) > 1 else ""
        if node.op_type not in ("Conv", "ConvTranspose", "Gemm") or weight not in masks:
            continue
        kept = masks[weight].get(1 if node.op_type == "ConvTranspose" else 0)
        if kept is not None:
            if len(node.input) > 2:
                masks.setdefault(node.input[2], {})[0] = kept
            _cut_groups(node, kept)
    return masks


def _cut_groups(node: Any, kept: np.ndarray) -> None:
    """A grouped convolution has as many fewer groups as it has fewer outputs."""
    for attribute in node.attribute:
        if attribute.name == "group" and attribute.i > 1:
            attribute.i = attribute.i * int(kept.sum()) // len(kept)


def _free_shape(shape: np.ndarray, rows: int) -> np.ndarray:
    """A stated shape whose first size was free, with the batch there and the last, where channels lie, free instead."""
    if len(shape) not in (2, 3) or shape[0] != -1:
        return shape
    return np.array([rows, *shape[1:-1], -1], dtype=shape.dtype)
