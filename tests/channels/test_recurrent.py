"""Layers that feed a recurrent layer are cut with the weights of its gates for inputs."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportIndexIssue=false, reportOptionalMemberAccess=false

import copy

import pytest
import torch
from networks import images, make
from torch import Tensor, nn

import ldrf
from ldrf.calibration.network import read_network
from ldrf.planning.objectives.speedup import mac_model
from ldrf.tracing.counting import count_macs
from ldrf.units.module_surgery import cut_plainly


class Fed(nn.Module):
    """Steps [b, 5, 6] through a layer, a recurrent layer, and a last one."""

    def __init__(self, kind: type[nn.RNNBase], **options: object) -> None:
        super().__init__()
        self.one = nn.Linear(6, 12)
        self.recurrent = kind(12, 8, batch_first=True, **options)
        self.last = nn.Linear(16 if self.recurrent.bidirectional else 8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.recurrent(torch.relu(self.one(x)))[0][:, -1])


KINDS = [
    (nn.LSTM, {}),
    (nn.LSTM, {"bidirectional": True, "num_layers": 2, "bias": False}),
    (nn.GRU, {}),
    (nn.RNN, {"nonlinearity": "relu"}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_gates_lose_the_inputs_of_a_cut_layer(kind: type[nn.RNNBase], options: dict[str, object]):
    model = make(lambda: Fed(kind, **options))
    net = read_network(model, [images(8, shape=(5, 6))], (), ldrf.PruneConfig())
    (unit,) = net.units
    ways = ["", "_reverse"] if options.get("bidirectional") else [""]
    assert [s.tensor for s in unit.slices] == [f"recurrent.weight_ih_l0{way}" for way in ways]
    assert "it is a recurrent layer" in {s.name: s.reason for s in net.skipped}["recurrent"]
    slim, silent = copy.deepcopy(model), copy.deepcopy(model)
    cut_plainly(slim, net.units, {"one": torch.arange(7)})
    with torch.no_grad():
        silent.one.weight[7:], silent.one.bias[7:] = 0, 0
        x = images(3, shape=(5, 6))
        assert slim.recurrent.input_size == 7 and torch.allclose(slim(x), silent(x), atol=1e-6)
    macs = mac_model(net.trace, net.units, count_macs(model, net.example))
    assert macs.at({"one": 7}) == count_macs(slim, net.example)


@pytest.mark.slow
def test_a_layer_before_a_recurrent_one_is_pruned_and_the_layer_behind_makes_up_for_it():
    config = ldrf.PruneConfig(steps=2, joint_steps=2, multiple=1)
    result = ldrf.prune(make(lambda: Fed(nn.GRU)), [images(40, shape=(5, 6))], speedup=1.2, config=config)
    assert result.widths["one"] < 12 and result.model(images(2, shape=(5, 6))).shape == (2, 3)
    assert result.held_out.reconstructed <= result.held_out.cut or result.held_out.returned == "cut"
