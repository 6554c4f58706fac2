"""A cut copy of a model computes what the model computes when nobody reads the neurons that went."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false

import copy

import pytest
import torch
import torch.nn.functional as F
from networks import Heads, Uneven, images, settled, unread
from torch import Tensor, nn

import ldrf
from ldrf.calibration.network import read_network
from ldrf.planning.objectives.speedup import mac_model
from ldrf.tracing.counting import count_macs
from ldrf.units.indices import stated_sizes
from ldrf.units.module_surgery import cut_plainly

FAST = ldrf.PruneConfig(solver="closed-form", energy=0.2, multiple=1)


class Counting(nn.Module):
    """Attention that keeps its number of heads, and the width of all of them, as numbers of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.patch, self.heads, self.inner = nn.Conv2d(3, 8, 4, 4), 3, 12
        self.qkv, self.out, self.head = nn.Linear(8, 36), nn.Linear(12, 8), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        b, n, _ = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, 4).permute(2, 0, 3, 1, 4).unbind(0)
        seen = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, self.inner)
        return self.head((x + self.out(seen)).mean(1))


@pytest.mark.slow
def test_numbers_that_a_module_keeps_follow_the_width(tmp_path):
    model, x = settled(Counting()), images(32)
    net = read_network(model, [x], (), FAST)
    unit = next(u for u in net.units if u.name == "qkv")
    assert unit.width == 3 and {a.name for a in unit.attributes} == {"heads", "inner"}
    assert stated_sizes([unit], {"qkv": torch.arange(2)}) == {"heads": 2, "inner": 8}
    result = ldrf.prune(model, [x], widths={"qkv": 2}, config=FAST)
    assert (result.model.heads, result.model.inner, result.model.qkv.out_features) == (2, 8, 24)
    assert (model.heads, model.inner) == (3, 12)
    loaded = ldrf.load(ldrf.save(result, tmp_path / "slim"), settled(Counting()))
    torch.testing.assert_close(loaded(x), result.model(x))


@pytest.mark.slow
def test_cut_heads_are_heads_that_nobody_reads():
    model, x = settled(Heads()), images(16)
    net = read_network(model, [x], (), FAST)
    unit = next(u for u in net.units if u.name == "q")
    assert unit.width == 4 and {layer.name for layer in unit.partners} == {"k", "v"}
    slim, masked = copy.deepcopy(model), copy.deepcopy(model)
    cut_plainly(slim, [unit], {"q": torch.tensor([0, 2])})
    masked.o.weight.data.view(12, 4, 3)[:, [1, 3]] = 0
    torch.testing.assert_close(slim(x), masked(x))
    assert slim.v.out_features == slim.o.in_features == 6


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Using padding=.same. with even kernel:UserWarning")
def test_groups_of_transposed_convolutions_and_uneven_padding():
    model, x = settled(Uneven()), images(16)
    net = read_network(model, [x], (), FAST)
    assert {u.name: (u.width, [c.layer.name for c in u.consumers]) for u in net.units} == {
        "enter": (4, ["even"]),
        "even": (10, ["odd"]),
        "odd": (10, ["fc"]),
    }
    kept = {"enter": torch.tensor([0, 2, 3]), "even": torch.arange(7), "odd": torch.arange(4, 10)}
    slim = copy.deepcopy(model)
    cut_plainly(slim, net.units, kept)
    with torch.no_grad():
        torch.testing.assert_close(slim(x), unread(net, kept)(x), rtol=1e-4, atol=1e-6)
    assert (slim.up.groups, slim.pairs.groups, slim.pairs.out_channels) == (9, 3, 6)  # pyright: ignore
    widths = {name: len(found) for name, found in kept.items()}
    cost = mac_model(net.trace, net.units, count_macs(model, net.example))
    assert cost.at(widths) == pytest.approx(count_macs(slim, net.example))
