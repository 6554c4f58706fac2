"""All operators that channels are followed through, a row each, and a way to add one's own.

``docs/operators.md`` shows how a row is written for an operator made with ``torch.library``. The rules to choose from
are imported here: ``same``, ``elementwise``, ``added``, ``per_channel``, ``pool``, ``reordered`` and ``view`` say what
happens to channels; ``sizes_in`` and ``count_in`` say how the sizes in the arguments shrink.
"""

from types import TracebackType

import torch
from torch import fx

from ldrf.channels import shapes
from ldrf.channels.flow import Rule, unknown
from ldrf.channels.joins import join, stack
from ldrf.channels.norms import batch_norm, group_norm, instance_norm, layer_norm, per_channel, prelu
from ldrf.channels.products import ATTENTION, attention, product
from ldrf.channels.recurrent import recurrent
from ldrf.channels.rules import (
    added,
    elementwise,
    nothing,
    one_by_one,
    pool,
    reduce,
    same,
    softmax,
    transposed_groups,
)
from ldrf.channels.shapes import reordered, view
from ldrf.errors import LdrfError
from ldrf.tracing.narrowing import count_in, last_size, map_sizes, norm_groups, part_sizes, sizes_in, slice_ends
from ldrf.tracing.operations import NORM
from ldrf.tracing.operator_table import OPERATORS, Operator, operator_of

__all__ = [
    "Operator",
    "Registration",
    "added",
    "count_in",
    "elementwise",
    "per_channel",
    "pool",
    "register_operator",
    "reordered",
    "rule_of",
    "same",
    "sizes_in",
    "view",
]


def rule_of(node: fx.Node) -> Rule:
    """The channel rule of a call: that of its row, or that of any function of single values, or none that is known."""
    operator = operator_of(node)
    return operator.channels if operator else one_by_one(node) or unknown


class Registration:
    """A row that was added to the table: ``remove()`` takes it out again, and so does the end of a ``with`` block."""

    def __init__(self, name: str, before: Operator | None) -> None:
        self.name, self.before = name, before

    def remove(self) -> None:
        """The table as it was before the row was added."""
        OPERATORS.registered.pop(self.name, None)
        if self.before is not None:
            OPERATORS.registered[self.name] = self.before

    def __enter__(self) -> "Registration":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.remove()


def register_operator(name: str, operator: Operator, override: bool = False) -> Registration:
    """Tell ldrf what an operator does to channels, so that layers before it can be cut.

    Args:
        name: the operator without its overload, as in ``"mylib.scale"`` (``"mylib::scale"`` is the same)
        operator: its row
        override: whether to replace a row that the table has already

    Returns:
        A registration, which takes the row out again with ``remove()`` or at the end of a ``with`` block.
    """
    key = str(name).replace("::", ".")
    if key.count(".") != 1 or not all(part.isidentifier() for part in key.split(".")):
        raise LdrfError(f"The name of an operator must be like 'mylib.scale', without its overload. Got {name!r}.")
    if not isinstance(operator, Operator):
        raise LdrfError(f"The row of '{key}' must be an ldrf.Operator. Got {type(operator).__name__} instead.")
    if OPERATORS.find(key) and not override:
        raise LdrfError(f"The operator '{key}' has a row already: override=True replaces it.")
    registration = Registration(key, OPERATORS.registered.get(key))
    OPERATORS.registered[key] = operator
    return registration


def _rows(names: str, operator: Operator) -> dict[str, Operator]:
    """One row for each of these ATen operators."""
    return {f"aten.{name}": operator for name in names.split()}


ROWS: dict[str, Operator] = {
    # Functions of single values. Those of the first row are what a layer's outputs are compared behind.
    **_rows(
        "relu relu6 hardtanh gelu silu sigmoid tanh hardswish hardsigmoid leaky_relu elu selu celu mish",
        Operator(same, kind="activation"),
    ),
    **_rows(
        "softplus neg abs sqrt rsqrt square exp log pow clamp clamp_min clamp_max detach_ lift_fresh_copy erf "
        "log_sigmoid log_sigmoid_forward hardshrink softshrink threshold reciprocal sign sin cos log1p expm1 floor "
        "ceil round logical_not bitwise_not isnan type_as native_dropout",
        Operator(same),
    ),
    **_rows("clone contiguous dropout alias detach to _to_copy", Operator(same, kind="moves")),
    **_rows("prelu _prelu_kernel", Operator(prelu)),
    # Several operands, value by value.
    **_rows("add sub", Operator(added)),
    **_rows("mul div", Operator(elementwise, kind="scales")),
    **_rows(
        "maximum minimum where masked_fill eq ne gt lt ge le logical_and logical_or fmod remainder floor_divide "
        "rsub lerp addcmul addcdiv",
        Operator(elementwise),
    ),
    # Each map by itself.
    **_rows(
        "avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d _adaptive_avg_pool2d "
        "upsample_nearest2d upsample_bilinear2d",
        Operator(pool, kind="linear"),
    ),
    **_rows(
        "max_pool1d max_pool2d max_pool3d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d "
        "adaptive_max_pool3d max_pool2d_with_indices max_pool3d_with_indices _adaptive_avg_pool3d upsample_nearest1d "
        "upsample_nearest3d upsample_linear1d upsample_bicubic2d upsample_trilinear3d _upsample_bilinear2d_aa "
        "_upsample_bicubic2d_aa _upsample_nearest_exact2d reflection_pad1d reflection_pad2d replication_pad1d "
        "replication_pad2d replication_pad3d grid_sampler_2d grid_sampler",
        Operator(pool),
    ),
    # Along one dimension, or over it.
    **_rows("mean sum", Operator(reduce, kind="linear")),
    **_rows("amax amin var std max min argmax argmin prod var_mean linalg_vector_norm", Operator(reduce)),
    **_rows("softmax _softmax log_softmax _log_softmax cumsum", Operator(softmax)),
    **_rows("roll flip", Operator(shapes.elsewhere)),
    **_rows("index", Operator(shapes.index)),
    **_rows("constant_pad_nd pad", Operator(shapes.pad)),
    **_rows("sym_size", Operator(nothing)),
    # Norms that are not folded into a layer.
    NORM: Operator(batch_norm),
    **_rows("layer_norm native_layer_norm rms_norm _fused_rms_norm", Operator(layer_norm, last_size)),
    **_rows("native_group_norm", Operator(group_norm, map_sizes)),
    **_rows("group_norm", Operator(group_norm, norm_groups)),
    **_rows("instance_norm", Operator(instance_norm)),
    # Recurrent layers read channels in every gate.
    **_rows("lstm gru rnn_tanh rnn_relu", Operator(recurrent)),
    # Values that go elsewhere and stay as they are.
    **_rows("view _unsafe_view", Operator(view, sizes_in("size"), kind="moves", runs_as=torch.reshape)),
    **_rows("reshape", Operator(view, sizes_in("shape"), kind="moves", runs_as=torch.reshape)),
    **_rows("expand", Operator(shapes.expand, sizes_in("size"), kind="moves")),
    **_rows("permute", Operator(shapes.permute, kind="moves")),
    **_rows("transpose t", Operator(shapes.transpose, kind="moves")),
    **_rows("unsqueeze", Operator(shapes.unsqueeze, kind="moves")),
    **_rows("squeeze", Operator(shapes.squeeze, kind="moves")),
    **_rows("slice", Operator(shapes.take, slice_ends, kind="moves")),
    **_rows("select", Operator(shapes.select, kind="moves")),
    **_rows("split split_with_sizes", Operator(shapes.split, part_sizes, kind="moves")),
    **_rows("chunk", Operator(shapes.split, kind="moves")),
    **_rows("unbind", Operator(shapes.unbind, kind="moves")),
    "getitem": Operator(shapes.picked, kind="moves"),
    **_rows("repeat", Operator(shapes.repeat)),
    **_rows("glu", Operator(shapes.halves)),
    **_rows("pixel_shuffle pixel_unshuffle", Operator(shapes.shuffle_pixels)),
    **_rows("cat concat", Operator(join)),
    **_rows("stack", Operator(stack)),
    # Products of two values, and layers in groups that carry channels on.
    **_rows("bmm matmul", Operator(product, kind="product")),
    ATTENTION: Operator(attention),
    **_rows("conv_transpose1d conv_transpose2d conv_transpose3d", Operator(transposed_groups, count_in("groups"))),
}
