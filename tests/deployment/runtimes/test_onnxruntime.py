"""onnxruntime runs what is exported, cuts it without exporting again, and times layers by its own profile."""

import copy

import pytest
import torch
from deployment_pieces import PIECES
from networks import Chain, images
from torch import nn

from ldrf.deployment.runtimes import onnxruntime
from ldrf.errors import LdrfError
from ldrf.inputs import Inputs
from ldrf.tracing.export import working_copy
from ldrf.units.indices import surviving
from ldrf.units.module_surgery import cut_plainly

pytest.importorskip("onnxruntime")


@pytest.mark.slow
def test_whole_and_cut_networks_compute_what_the_models_do(network):
    net, inputs = network(Chain), Inputs((images(2),), {})
    dense = working_copy(net.model)
    prepared = onnxruntime.ENTRY.prepare(dense, inputs, 1)
    assert torch.allclose(torch.from_numpy(prepared.call()[0]), dense(images(2)), atol=1e-4)
    kept = {unit.name: torch.arange(unit.width // 2) for unit in net.units}
    slim = copy.deepcopy(dense)
    cut_plainly(slim, net.units, kept)
    cut = prepared.cut(slim, surviving(net.units, kept))
    assert cut is not None and torch.allclose(torch.from_numpy(cut.call()[0]), slim(images(2)), atol=1e-4)
    assert prepared.cut(dense, surviving(net.units, kept)) is None  # it would not be the same network


def test_every_piece_has_a_time_for_each_round():
    times = onnxruntime.ENTRY.time_pieces(PIECES, 1, 4)
    assert [len(seconds) for seconds in times] == [4] * len(PIECES)
    assert all(0 <= s < 1 for seconds in times for s in seconds) and sum(map(sum, times)) > 0


def test_an_operator_it_cannot_take_is_told(monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("NOT_IMPLEMENTED: no kernel for Conv")

    monkeypatch.setattr(onnxruntime, "export_onnx", lambda model, inputs, file: file.write_bytes(b""))
    monkeypatch.setattr(onnxruntime, "onnx_session", broken)
    with pytest.raises(LdrfError, match="onnxruntime cannot take Linear: NOT_IMPLEMENTED"):
        onnxruntime.ENTRY.prepare(nn.Linear(2, 2), Inputs((torch.zeros(1, 2),), {}), 1)
