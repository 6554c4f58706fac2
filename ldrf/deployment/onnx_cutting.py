"""An exported network cut without exporting it again: only sizes of its constants change."""

from typing import Any

import numpy as np

from ldrf.units.indices import Left


def cut_onnx(model: Any, left: Left) -> Any:
    """A copy of an ONNX model with only those indices of the named weights that are left.

    Weights go by their name in the torch model; the bias of a convolution or linear layer, which the norm behind it
    was folded into, goes with its weight. The caller compares outputs: other constants may hold widths, too.
    """
    import onnx
    from onnx import numpy_helper

    cut = onnx.ModelProto()
    cut.CopyFrom(model)
    masks: dict[str, dict[int, np.ndarray]] = {}
    for (name, dim), mask in left.items():
        masks.setdefault(name, {})[dim] = mask
    for node in cut.graph.node:
        weight = node.input[1] if len(node.input) > 1 else ""
        if node.op_type not in ("Conv", "ConvTranspose", "Gemm") or weight not in masks:
            continue
        rows = masks[weight].get(1 if node.op_type == "ConvTranspose" else 0)
        if rows is not None:
            if len(node.input) > 2:
                masks.setdefault(node.input[2], {})[0] = rows
            _cut_groups(node, rows)
    for constant in cut.graph.initializer:
        if constant.name in masks:
            array = numpy_helper.to_array(constant)
            for dim, mask in masks[constant.name].items():
                array = array[(slice(None),) * dim + (mask,)]
            constant.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), constant.name))
    del cut.graph.value_info[:]  # the shapes noted there are those of the whole network
    return cut


def _cut_groups(node: Any, rows: np.ndarray) -> None:
    """A grouped convolution has as many fewer groups as it has fewer outputs."""
    for attribute in node.attribute:
        if attribute.name == "group" and attribute.i > 1:
            attribute.i = attribute.i * int(rows.sum()) // len(rows)
