"""A piece as a module is the layer, the sum and the activation."""

import torch

from ldrf.deployment.geometry import Geometry, Piece
from ldrf.deployment.piece_module import PieceModule, piece_inputs


def test_it_adds_and_then_activates():
    geometry = Geometry("conv", (1, 1), (1, 1), (0, 0), (1, 1), (), (3, 3), 1, None, True, "aten.relu")
    piece = Piece(geometry, 2, 4, 1)
    module, (x, other) = PieceModule(piece), piece_inputs(piece)
    wanted = (torch.einsum("oi,nihw->nohw", module.weight[:, :, 0, 0], x) + other).relu()
    assert torch.allclose(module(x, other), wanted, atol=1e-6)
