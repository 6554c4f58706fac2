"""The cost model against a count on the model that was actually cut."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false

import copy

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from networks import CASES, Case, Chain, Mlp, images, make, settled
from torch import Tensor, nn

from ldrf.calibration.network import read_network
from ldrf.config import PruneConfig
from ldrf.inputs import Inputs
from ldrf.measuring.timing import latency_ratio
from ldrf.planning.objectives.params import parameter_model
from ldrf.planning.objectives.speedup import mac_model
from ldrf.tracing.counting import count_macs, count_parameters
from ldrf.units.module_surgery import cut_plainly


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
@settings(max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_cost_of_any_plan_is_the_count_of_the_cut_model(network, case: Case, data):
    net = network(case.kind)
    widths = {u.name: data.draw(st.integers(1, u.width), label=u.name) for u in net.units}
    cut = copy.deepcopy(net.model)
    cut_plainly(cut, net.units, {u.name: torch.arange(u.width)[-widths[u.name] :] for u in net.units})
    macs = mac_model(net.trace, net.units, count_macs(net.model, net.example))
    parameters = parameter_model(net.trace, net.units, count_parameters(net.model))
    assert macs.at(widths) == pytest.approx(count_macs(cut, net.example), rel=1e-9)
    assert parameters.at(widths) == pytest.approx(count_parameters(cut), rel=1e-9)
    assert macs.at({}) == count_macs(net.model, net.example)


@pytest.mark.parametrize("case", CASES[:4], ids=str)
def test_saving_is_the_price_of_neurons(network, case: Case):
    net = network(case.kind)
    cost = mac_model(net.trace, net.units, count_macs(net.model, net.example))
    widths = {u.name: max(2, u.width // 2) for u in net.units}
    for name, width in widths.items():
        for other in (width - 1, 1, width + 1):
            saved = cost.saving(name, widths, other)
            assert saved == pytest.approx(cost.at(widths) - cost.at({**widths, name: other}))
            assert (saved > 0) is (other < width)


class Windows(nn.Module):
    """Windows folded into the batch, attention in each, and a linear layer that is an ``addmm`` over all tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.patch, self.fc = nn.Conv2d(3, 8, 1), nn.Linear(12, 5)
        self.q, self.k, self.v, self.o = (nn.Linear(8, 8) for _ in range(4))
        self.weight, self.bias = nn.Parameter(torch.randn(8, 12)), nn.Parameter(torch.randn(12))

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 4, 5, 1).reshape(-1, 16, 8)
        q, k = (layer(x).view(-1, 16, 2, 4).transpose(1, 2) for layer in (self.q, self.k))
        v = self.v(x).unflatten(-1, (2, -1)).transpose(1, 2)
        x = x + self.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        x = F.relu(torch.addmm(self.bias, x.reshape(-1, 8), self.weight))
        return self.fc(x).view(-1, 64, 5).mean(1) + torch.zeros(5)  # tensors of its own: it is counted on the CPU


@pytest.mark.slow
def test_windows_and_tokens_folded_into_the_batch_are_counted():
    model = settled(Windows())
    net = read_network(model, [images(8)], (), PruneConfig())
    total = count_macs(model, net.example)
    assert total == 64 * (3 * 8 + 4 * 8 * 8 + 8 * 12 + 12 * 5) + 4 * 2 * 16 * 16 * 8
    widths = {u.name: max(1, u.width // 2) for u in net.units}
    assert widths.keys() >= {"v", "weight"}
    cut = copy.deepcopy(model)
    cut_plainly(cut, net.units, {name: torch.arange(width) for name, width in widths.items()})
    assert mac_model(net.trace, net.units, total).at(widths) == pytest.approx(count_macs(cut, net.example))


def test_macs_of_known_layers():
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.Flatten(), nn.Linear(8 * 64, 5))
    assert count_macs(model, Inputs((images(7),), {})) == 64 * 27 * 8 + 8 * 64 * 5
    assert count_parameters(model) == 27 * 8 + 8 * 64 * 5 + 5


def test_macs_do_not_depend_on_batch_mode_or_dtype():
    model, x = make(Chain), images(9)
    expected = count_macs(model, Inputs((x[:1],), {}))
    assert count_macs(model.train(), Inputs((x,), {})) == expected
    assert count_macs(model.half(), Inputs((x,), {})) == expected
    assert model.training and model.conv1.weight.dtype is torch.float16


def test_models_that_make_tensors_on_the_cpu_are_counted():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 6)

        def forward(self, x):
            return self.fc(x * torch.arange(4.0))

    assert count_macs(Scaled(), Inputs((torch.randn(3, 4),), {})) == 24


@pytest.mark.slow
def test_latency_is_measured_for_both():
    found = latency_ratio(make(Mlp), make(Mlp), Inputs((images(4),), {}), seconds=0.1)
    assert set(found) == {"dense", "slim"} and all(0 < ms < 1000 for ms in found.values())


class TokenFirst(nn.Module):
    """A parameter, not an activation, is what its first layer is given."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.inner = nn.Parameter(torch.randn(1, 1, 6)), nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(self.token.expand(len(x), -1, -1)) + x


def test_a_parameter_given_to_a_layer_is_counted():
    model = TokenFirst()
    assert count_macs(model, Inputs((torch.randn(2, 1, 5),), {})) == 30
    assert model.token.requires_grad


def test_fused_attention_is_counted_like_its_parts():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    attention = 4 * 5 * 8 * 8 + 2 * 5 * 5 * 8  # query, key, value and output of 5 tokens; their products
    assert count_macs(layer, Inputs((torch.randn(2, 5, 8),), {})) == attention + 2 * 5 * 8 * 16
    assert torch.backends.mha.get_fastpath_enabled()
