"""OpenVINO times layers by its own profile, where it is installed."""

import pytest
import torch
from deployment_pieces import PIECES
from torch import nn

from ldrf.deployment.runtimes import openvino
from ldrf.errors import LdrfError
from ldrf.inputs import Inputs


def test_a_model_it_cannot_take_is_told(monkeypatch):
    def broken(*_):
        raise RuntimeError("no such operation")

    monkeypatch.setattr(openvino, "export_onnx", lambda model, inputs, file: file.write_bytes(b""))
    monkeypatch.setattr(openvino, "_request", broken)
    with pytest.raises(LdrfError, match="OpenVINO cannot take Linear: no such operation"):
        openvino.ENTRY.prepare(nn.Linear(2, 2), Inputs((torch.zeros(1, 2),), {}), 1)


def test_every_piece_has_a_time_for_each_round():
    pytest.importorskip("openvino", reason="openvino is not installed: pip install 'ldrf[openvino]'")
    times = openvino.ENTRY.time_pieces(PIECES, 1, 4)
    assert [len(seconds) for seconds in times] == [4] * len(PIECES)
    assert all(0 <= s < 1 for seconds in times for s in seconds) and sum(map(sum, times)) > 0
