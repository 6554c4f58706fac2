"""Finding the units that can be cut takes few trials, however deep the network is."""

import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from networks import images, make, settled
from torch import Tensor, nn

import ldrf
from ldrf.calibration.network import read_network
from ldrf.units import trial, trial_cuts
from ldrf.units.trial_cuts import largest
from ldrf.units.unit import Unit


def found(bad: set[str], names: list[str]) -> tuple[list[str], int]:
    """Names of the units that are found to work, and the number of trials, where each of the ``bad`` spoils a trial."""
    tried = []

    def works(units: Any) -> bool:
        tried.append(units)
        return not any(unit.name in bad for unit in units)

    units: Any = tuple(SimpleNamespace(name=name) for name in names)
    return [unit.name for unit in largest(units, works)], len(tried)


NAMES = [f"blocks.{i}.{part}" for i in range(40) for part in ("qkv", "mlp")]


def test_a_kind_that_fails_everywhere_is_left_out_at_once():
    good, trials = found({name for name in NAMES if "qkv" in name}, NAMES)
    assert good == [name for name in NAMES if "mlp" in name]
    assert trials <= 6


def test_single_units_that_fail_are_found_among_their_kind():
    bad = {"blocks.7.qkv", "blocks.8.qkv", "blocks.0.mlp"}
    good, _ = found(bad, NAMES)
    assert sorted(good) == sorted(set(NAMES) - bad)


def test_units_that_fail_only_together_are_added_one_by_one():
    tried: list[int] = []

    def works(units: Any) -> bool:
        tried.append(len(units))
        return not {"a", "b"} <= {unit.name for unit in units}

    units: Any = tuple(SimpleNamespace(name=name) for name in ("a", "b", "c"))
    assert [unit.name for unit in largest(units, works)] == ["a", "c"]


def test_none_or_all():
    assert found(set(), NAMES) == (NAMES, 1)
    assert found(set(NAMES), NAMES)[0] == []
    assert found({"x"}, ["x"])[0] == []


class Deep(nn.Module):
    """As many blocks as asked for: each a residual branch whose code spells out a width, and one that does not."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 4)
        self.free = nn.ModuleList(
            nn.Sequential(nn.Conv2d(8, 6, 1), nn.ReLU(), nn.Conv2d(6, 8, 1)) for _ in range(depth)
        )
        self.stated = nn.ModuleList(nn.ModuleList([nn.Conv2d(8, 6, 1), nn.Conv2d(6, 8, 1)]) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for free, (one, two) in zip(self.free, self.stated, strict=True):  # pyright: ignore[reportGeneralTypeIssues]
            x = x + free(x)
            x = x + two(F.relu(one(x)).view(-1, 6, *x.shape[2:]))
        return self.head(x.mean((2, 3)))


@pytest.mark.slow
def test_a_deeper_network_takes_as_many_trials(monkeypatch):
    runs: list[nn.Module | None] = []
    real = trial.outputs_of

    def counted(model: nn.Module | None, chunk: Any) -> Any:
        runs.append(model)
        return real(model, chunk)

    monkeypatch.setattr(trial, "outputs_of", counted)
    counts, calls = [], []
    for depth in (2, 8):
        runs.clear()
        net = read_network(settled(Deep(depth)), [images(4)], (), ldrf.PruneConfig())
        assert {u.name for u in net.units} == {f"free.{i}.0" for i in range(depth)}
        counts.append(len(runs))
        calls.append(len(net.trace.nodes))
    assert counts[0] == counts[1] > 2 and calls[1] > 3 * calls[0]  # so the work grows with the calls, and no faster


class Spelt(nn.Module):
    """Attention whose code names its heads and their width, so neither can change, before a layer that can."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(3, 24), nn.Linear(8, 6)
        self.up, self.down = nn.Linear(6, 10), nn.Linear(10, 4)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x.flatten(2).transpose(1, 2)).view(-1, 64, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind()
        seen = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return self.down(F.relu(self.up(self.out(seen).mean(1))))


@pytest.mark.slow
def test_what_is_compared_with_is_looked_at_once(monkeypatch):
    whole: list[bool] = []
    followed: list[Any] = []
    copied, follow = trial.cut_copy, trial_cuts.follow_channels

    def counted(model: nn.Module, units: tuple[Unit, ...], kept: Any) -> Any:
        whole.extend([True] * (not units))
        return copied(model, units, kept)

    def noted(*args: Any) -> Any:
        followed.append(args)
        return follow(*args)

    monkeypatch.setattr(trial, "cut_copy", counted)
    monkeypatch.setattr(trial_cuts, "follow_channels", noted)
    net = read_network(make(Spelt), [images(4)], (), ldrf.PruneConfig())
    assert "up" in {u.name for u in net.units} and len(followed) > 2
    assert len(whole) == 2  # with its own weights and with random ones


class TiedByCode(nn.Module):
    """The width of every head is counted from another layer's: both fit if both lose one of four, and else not."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.qkv, self.out = nn.Linear(6, 16), nn.Linear(16, 48), nn.Linear(16, 16)
        self.up, self.last = nn.Linear(16, 12), nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        b, t, width = x.shape
        q, k, v = self.qkv(x).reshape(b, t, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, -1))
        return self.last(F.relu(self.up(x)))


@pytest.mark.slow
def test_widths_that_the_code_ties_to_each_other_are_left_alone():
    net = read_network(make(TiedByCode), [images(8, shape=(5, 6))], (), ldrf.PruneConfig())
    assert [unit.name for unit in net.units] == ["up"] and not net.coupled
    config = ldrf.PruneConfig(steps=2, joint_steps=2, coupled=True)
    assert ldrf.prune(net.model, [images(24, shape=(5, 6))], speedup=1.1, config=config).widths["up"] < 12


class WithScripted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 4, 1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            self.act = torch.jit.script(nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        return self.two(self.act(self.one(x)))


def test_a_scripted_activation_is_followed():
    net = read_network(WithScripted().eval(), [images(4)], (), ldrf.PruneConfig())
    assert [unit.name for unit in net.units] == ["one"]
