"""Eager torch runs the folded network in one of two layouts, and times layers in turns."""

import torch
from deployment_pieces import PIECES
from networks import Chain, images, make

from ldrf.deployment.runtimes.torch import ENTRY, faster_layout
from ldrf.inputs import Inputs


def test_the_prepared_network_computes_what_the_model_does():
    model, x = make(Chain).eval(), images(2)
    prepared = ENTRY.prepare(model, Inputs((x,), {}), 1)
    assert torch.allclose(prepared.call(), model(x), atol=1e-4)


def test_every_piece_has_a_time_for_each_round():
    times = ENTRY.time_pieces(PIECES, 1, 3)
    assert [len(seconds) for seconds in times] == [3] * len(PIECES)
    assert all(0 < s < 1 for seconds in times for s in seconds)


def test_a_model_that_takes_no_other_layout_keeps_its_own():
    class View(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.view(len(x), -1)

    assert faster_layout(View(), Inputs((images(2),), {}), 1) == torch.contiguous_format
    assert ENTRY.version() == torch.__version__
