"""Activations are the same in torch and in ONNX."""

import pytest
import torch

from ldrf.deployment.activations import ACTIVATIONS
from ldrf.deployment.geometry import Geometry, Piece
from ldrf.deployment.onnx_export import onnx_session
from ldrf.deployment.onnx_pieces import pieces_graph

pytest.importorskip("onnxruntime")


def test_onnx_computes_what_torch_does():
    linear = Geometry("linear", (), (), (), (), (), (), 1, None, False, None)
    plain, *others = (Piece(Geometry(**{**vars(linear), "activation": name}), 6, 5, 4) for name in (None, *ACTIVATIONS))
    model, feeds = pieces_graph([plain, *others])
    same = {name: feeds["piece0_x"] for name in feeds}
    raw, *made = onnx_session(model, 1).run(None, same)
    for piece, output in zip(others, made, strict=True):
        wanted = ACTIVATIONS[str(piece.geometry.activation)].apply(torch.from_numpy(raw))
        assert torch.allclose(torch.from_numpy(output), wanted, atol=1e-6), piece.geometry.activation
