"""Small pieces of every kind."""

from ldrf.deployment.geometry import Geometry, Piece

_SAME = ((3, 3), (1, 1), (1, 1), (1, 1), ())
PIECES = [
    Piece(Geometry("conv", *_SAME, (6, 6), 1, None, False, "aten.relu"), 8, 12, 1),
    Piece(Geometry("conv", *_SAME, (6, 6), 1, None, True, "aten.relu"), 8, 8, 2),
    Piece(Geometry("conv", *_SAME, (6, 6), 1, (1, 1), False, "aten.hardtanh"), 8, 8, 1),
    Piece(Geometry("transposed", (3, 3), (2, 2), (1, 1), (1, 1), (1, 1), (5, 4), 1, None, False, None), 4, 3, 2),
    Piece(Geometry("linear", (), (), (), (), (), (7,), 1, None, True, "aten.gelu"), 8, 4, 3),
    Piece(Geometry("linear", (), (), (), (), (), (), 1, None, False, None), 8, 4, 3),
]
