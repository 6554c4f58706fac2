"""Descent on R' and Q' of one unit; layers that meet in a product move together."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false
# pyright: reportOptionalMemberAccess=false, reportGeneralTypeIssues=false

import pytest
import torch
import torch.nn.functional as F
from networks import images, settled
from torch import Tensor, nn

import ldrf


class Gated(nn.Module):
    """A gated MLP between two layers: two inner layers meet in a product."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(8, 10)
        self.gate, self.up, self.down = nn.Linear(10, 16), nn.Linear(10, 16, bias=False), nn.Linear(16, 10)
        self.fc = nn.Linear(10, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.stem(x))
        return self.fc(F.relu(x + self.down(F.silu(self.gate(x)) * self.up(x))))


class Excited(nn.Module):
    """Squeeze and excitation: what scales the channels is computed from them, and has a norm of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.bn, self.two = nn.Conv2d(3, 12, 3, padding=1), nn.BatchNorm2d(12), nn.Conv2d(12, 6, 3)
        self.squeeze, self.excite, self.norm = nn.Conv2d(12, 4, 1), nn.Conv2d(4, 12, 1), nn.BatchNorm2d(12)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn(self.one(x)))
        seen = F.relu(self.squeeze(x.mean((2, 3), keepdim=True)))
        return self.two(x * torch.sigmoid(self.norm(self.excite(seen)))).mean((2, 3))


MODELS = [
    (Gated(), torch.randn(256, 8, generator=torch.Generator().manual_seed(0)), {"gate": 8}),
    (Excited(), images(96), {"one": 6}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("model", "batch", "widths"), MODELS, ids=["gated", "excited"])
def test_descending_both_beats_solving_the_reader_alone(model, batch, widths):
    model = settled(model, 0)
    results = {}
    for solver in ("closed-form", "joint"):
        config = ldrf.PruneConfig(solver=solver, steps=80, joint_steps=80, chunk=32)
        results[solver] = ldrf.prune(model, [batch], widths=widths, config=config)
    alone, joint = (results[s].history[0] for s in ("closed-form", "joint"))
    assert joint.way.startswith("descent")
    assert joint.error < 0.95 * alone.error
    assert alone.error <= joint.cut_error == alone.cut_error
    with torch.no_grad():
        gap = {s: float((r.model(batch) - model(batch)).square().mean()) for s, r in results.items()}
    assert gap["joint"] < gap["closed-form"]


@pytest.mark.slow
def test_partners_move_with_their_producer():
    model, batch, widths = settled(Gated(), 0), *MODELS[0][1:]
    slim = ldrf.prune(model, [batch], widths=widths, config=ldrf.PruneConfig(steps=20, joint_steps=20, chunk=32)).model
    whole = [row.tolist() for row in model.up.weight]
    assert slim.up.weight.shape == (8, 10)
    assert not any(row.tolist() in whole for row in slim.up.weight)


class SelfGated(nn.Module):
    """A gate that reads the very channels it scales, in one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.gate, self.two = nn.Conv2d(3, 10, 3, padding=1), nn.Conv2d(10, 10, 1), nn.Conv2d(10, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.one(x))
        return self.two(x * torch.sigmoid(self.gate(x.mean((2, 3), keepdim=True)))).mean((2, 3))


@pytest.mark.slow
def test_a_gate_that_reads_what_it_scales():
    model = settled(SelfGated(), 0)
    result = ldrf.prune(
        model, [images(32)], widths={"one": 6}, config=ldrf.PruneConfig(steps=5, joint_steps=5, chunk=16)
    )
    assert result.model.gate.weight.shape[:2] == (6, 6)
    assert result.history[0].error <= result.history[0].cut_error
    assert result.model(images(3)).shape == (3, 4)
