"""Norms are folded where that changes nothing but time."""

import torch
from networks import Chain, images, make
from torch import nn

from ldrf.deployment.folding import folded_copy
from ldrf.inputs import Inputs

X = Inputs((images(4),), {})


def test_norms_behind_convolutions_are_gone_and_the_outputs_stay():
    model = make(Chain).eval()
    folded = folded_copy(model, X)
    assert not any(isinstance(m, nn.BatchNorm2d) for m in folded.modules())
    assert torch.allclose(folded(images(4)), model(images(4)), atol=1e-4)
    assert any(isinstance(m, nn.BatchNorm2d) for m in model.modules())


class ReadTwice(nn.Module):
    """The norm is not the only one that reads the convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)
        self.bn.running_mean = torch.ones(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)
        return self.bn(y) + y


def test_a_convolution_that_others_read_keeps_its_norm():
    model = ReadTwice().eval()
    folded = folded_copy(model, X)
    assert isinstance(folded.get_submodule("bn"), nn.BatchNorm2d)
    assert torch.equal(folded(images(4)), model(images(4)))
