"""The constant of a branch is the mean of what it adds in the dense model."""

import torch
from networks import Deep, Residual, images, make
from torch import Tensor, nn

from ldrf.calibration.network import read_network
from ldrf.config import PruneConfig


def test_the_constant_is_the_mean_of_what_enters_the_sum():
    batches = [images(32), images(20, 1)]
    model = make(Deep)
    net = read_network(model, batches, (), PruneConfig(depth=True, chunk=8))
    seen: list[Tensor] = []
    model.two.bn2.register_forward_hook(lambda _m, _x, y: seen.append(y.clone()))  # pyright: ignore
    with torch.no_grad():
        model(torch.cat(batches))
    branch = next(b for b in net.branches if b.name == "two.conv2")
    torch.testing.assert_close(branch.constant.values, seen[0].mean((0, 2, 3)), rtol=1e-4, atol=1e-5)


class Looks(nn.Module):
    """Its code looks at what comes out of the middle of the branch, so it does not run without it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.enter, self.leave = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 12, 1), nn.Conv2d(12, 8, 1)
        self.fc = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem(x))
        y = torch.relu(self.enter(x))
        y = self.leave(y.view(y.shape[0], y.shape[1], -1).view(y.shape[0], -1, *x.shape[2:]))
        return self.fc((x + y).mean((2, 3)))


def test_a_branch_without_which_the_model_does_not_run_is_none():
    assert read_network(make(Looks), [images(16)], (), PruneConfig(depth=True)).branches == ()


def test_without_depth_nothing_is_looked_for(network):
    assert network(Residual).branches == ()
