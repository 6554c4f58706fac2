"""A piece as a torch module: the layer, the sum and the activation."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ldrf.deployment.activations import ACTIVATIONS
from ldrf.deployment.geometry import Piece
from ldrf.tracing.layer import CONVOLVE, CONVOLVE_TRANSPOSED


class PieceModule(nn.Module):
    """What a piece computes, with small random weights: time does not depend on them."""

    def __init__(self, piece: Piece) -> None:
        super().__init__()
        self.piece = piece
        generator = torch.Generator().manual_seed(0)
        self.weight = nn.Parameter(torch.randn(piece.weight_shape, generator=generator) * 0.01, requires_grad=False)
        self.bias = nn.Parameter(torch.zeros(piece.outputs), requires_grad=False)

    def forward(self, x: Tensor, other: Tensor | None = None) -> Tensor:
        y = self._layer(x)
        if other is not None:
            y = y + other
        activation = self.piece.geometry.activation
        return ACTIVATIONS[activation].apply(y) if activation else y

    def _layer(self, x: Tensor) -> Tensor:
        g = self.piece.geometry
        if g.kind == "linear":
            return F.linear(x, self.weight, self.bias)
        if g.kind == "transposed":
            options = g.stride, g.padding, g.output_padding, 1, g.dilation
            return CONVOLVE_TRANSPOSED[len(g.kernel)](x, self.weight, self.bias, *options)  # pyright: ignore
        options = g.stride, g.padding, g.dilation, self.piece.groups
        return CONVOLVE[len(g.kernel)](x, self.weight, self.bias, *options)  # pyright: ignore


def piece_inputs(piece: Piece) -> list[Tensor]:
    """What the module of a piece takes: the map it reads and, where it is added to another, that map."""
    generator = torch.Generator().manual_seed(1)
    shapes = [piece.input_shape, *([piece.output_shape] if piece.geometry.is_added else [])]
    return [torch.randn(shape, generator=generator) for shape in shapes]
