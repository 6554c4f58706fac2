"""Pieces in one ONNX graph compute what their modules do, and their times are told apart."""

import numpy as np
import pytest
import torch
from deployment_pieces import PIECES

from ldrf.deployment.onnx_export import onnx_session
from ldrf.deployment.onnx_pieces import pieces_graph, sum_by_piece
from ldrf.deployment.piece_module import PieceModule

pytest.importorskip("onnxruntime")


def test_each_piece_computes_what_its_module_does():
    import onnx
    from onnx import numpy_helper

    model, feeds = pieces_graph(PIECES)
    constants = {c.name: numpy_helper.to_array(c) for c in onnx.load_from_string(model).graph.initializer}
    outputs = onnx_session(model, 1).run(None, feeds)
    for number, (piece, output) in enumerate(zip(PIECES, outputs, strict=True)):
        module = PieceModule(piece)
        weight = constants[f"piece{number}_weight"]
        turned = piece.geometry.kind == "linear" and piece.geometry.size
        module.weight.copy_(torch.from_numpy(np.array(weight.T if turned else weight)))
        given = [torch.from_numpy(feeds[f"piece{number}_{n}"]) for n in ("x", "other") if f"piece{number}_{n}" in feeds]
        assert torch.allclose(module(*given), torch.from_numpy(output), atol=1e-5), piece.geometry.key


def test_reorders_and_other_maps_do_not_count_and_renamed_nodes_follow_the_one_before():
    events = [
        ("ReorderInput_1", "ReorderInput", 5.0),
        ("piece1_act_y_nchwc", "Conv", 2.0),
        ("ReorderOutput", "ReorderOutput", 3.0),
        ("piece0_other_map_nchwc", "Conv", 7.0),
        ("fused piece0_product", "MatMul", 1.0),
        ("BiasGelu", "BiasGelu", 0.5),
    ]
    assert sum_by_piece(events, 2) == [1.5, 2.0]
