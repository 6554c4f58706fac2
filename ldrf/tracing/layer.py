"""One convolution or linear call: which tensors it uses, its geometry, and what it computes with other weights."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from ldrf.runtime.layout import is_safe

CONVOLVE = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}  # by the number of the kernel's dimensions
CONVOLVE_TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


@dataclass(frozen=True)
class Norm:
    """A BatchNorm folded into the layer before it: the names of its four tensors and its epsilon."""

    node: str
    weight: str | None
    bias: str | None
    mean: str
    var: str
    eps: float

    @property
    def module(self) -> str:
        return self.mean.rpartition(".")[0]


@dataclass(frozen=True)
class Layer:
    """One convolution or linear call: where it stands in the graph, which tensors it uses, its geometry."""

    name: str
    node: str
    weight: str
    bias: str | None
    norm: Norm | None
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    inputs: int
    outputs: int
    positions: int  # output positions per entry of the first dimension: H*W, or tokens
    is_transposed: bool = False  # its weight is stored inputs first; :func:`transposed_kernel` puts outputs first
    output_padding: tuple[int, ...] = ()
    input_positions: int = 0  # of a transposed convolution, which works once for each of them
    entries: int = 1  # of the first dimension per example: several where windows or frames are folded into the batch
    shared_by: int = 1  # examples per entry: several where a batch of fixed size is folded into the positions

    @property
    def calls(self) -> int:
        """How often the weight is used per example."""
        return self.entries * (self.input_positions or self.positions) // self.shared_by

    @property
    def row_dim(self) -> int:
        """Dimension of the stored weight that counts the outputs; the other of the first two counts the inputs."""
        return int(self.is_transposed)

    @property
    def is_linear(self) -> bool:
        return not self.kernel

    @property
    def channel_dim(self) -> int:
        """Dimension of the layer's result that counts its outputs."""
        return -1 if self.is_linear else 1

    @property
    def has_bias(self) -> bool:
        """Whether the layer can add a constant, by itself or through its norm."""
        return self.bias is not None or self.norm is not None

    @property
    def is_depthwise(self) -> bool:
        return self.groups > 1 and self.groups == self.outputs and self.inputs == self.outputs

    @property
    def result(self) -> str:
        """The graph node that holds the layer's output, after its norm."""
        return self.norm.node if self.norm else self.node


def transposed_kernel(weight: Tensor) -> Tensor:
    """A weight stored inputs first, [c, o, *k], as the plain one [o, c, *k]; done twice, it is the first again.

    The kernel of a transposed convolution is rotated by half a turn, so that it slides over the same map with zeros
    set between its values.
    """
    return weight.transpose(0, 1).flip(tuple(range(2, weight.ndim)))


def apply_affine(layer: Layer, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """What a layer of this geometry computes with another weight, [o, c, *k], which may have fewer outputs."""
    if layer.is_linear:
        return F.linear(x, weight, bias)
    dims = len(layer.kernel)
    if not is_safe(layer.kernel, layer.stride, min(weight.shape[:2])):
        x, weight = x.contiguous(), weight.contiguous()
    if layer.is_transposed:
        options = layer.stride, layer.padding, layer.output_padding, 1, layer.dilation
        return CONVOLVE_TRANSPOSED[dims](x, transposed_kernel(weight), bias, *options)  # pyright: ignore
    # Groups go whole: a cut weight has as many fewer of them as it has fewer outputs.
    groups = layer.groups * weight.shape[0] // layer.outputs if layer.groups > 1 else 1
    return CONVOLVE[dims](x, weight, bias, layer.stride, layer.padding, layer.dilation, groups)  # pyright: ignore
