"""A geometry is all of a layer but its channels, and a piece has the shapes that torch gives it."""

import pytest
from networks import Bottleneck, Chain, VitBlock

from ldrf.deployment.geometry import Geometry, Piece, geometry_of
from ldrf.deployment.piece_module import PieceModule, piece_inputs


def geometries(net) -> dict[str, Geometry]:
    return {layer.name: g for layer in net.trace.layers if (g := geometry_of(net.trace, layer)) is not None}


def test_the_activation_behind_the_norm_belongs_to_the_layer(network):
    found = geometries(network(Chain))
    assert found["conv1"].activation == "aten.relu" and found["conv1"].size == (8, 8)
    assert found["fc"].kind == "linear" and found["fc"].activation is None and found["fc"].size == ()


def test_the_last_addend_has_the_sum(network):
    found = geometries(network(Bottleneck))
    added = [name for name, g in found.items() if g.is_added]
    assert added and all(found[name].activation in ("aten.relu", None) for name in added)
    assert not found["stem"].is_added if "stem" in found else True


@pytest.mark.slow
def test_tokens_are_part_of_a_linear_layers_geometry(network):
    found = geometries(network(VitBlock))
    assert any(g.kind == "linear" and g.size for g in found.values())


PIECES = [
    Piece(Geometry("conv", (3, 3), (2, 2), (1, 1), (1, 1), (), (9, 7), 1, None, True, "aten.relu"), 5, 6, 2),
    Piece(Geometry("conv", (3,), (1,), (2,), (2,), (), (9,), 2, (2, 3), False, None), 8, 12, 1),
    Piece(Geometry("transposed", (3, 3), (2, 2), (1, 1), (1, 1), (1, 1), (5, 4), 1, None, False, None), 4, 3, 2),
    Piece(Geometry("linear", (), (), (), (), (), (7,), 1, None, True, "aten.gelu"), 8, 4, 3),
]


@pytest.mark.parametrize("piece", PIECES, ids=lambda p: p.geometry.kind)
def test_shapes_are_those_that_torch_gives(piece: Piece):
    assert PieceModule(piece)(*piece_inputs(piece)).shape == piece.output_shape


def test_a_key_tells_geometries_apart():
    assert len({piece.geometry.key for piece in PIECES}) == len(PIECES)
