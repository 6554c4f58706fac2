"""ResNets for CIFAR-10 (He 2016): basic blocks of 16/32/64 channels with parameter-free shortcuts."""

import torch.nn.functional as F
from torch import Tensor, nn


class BasicBlock(nn.Module):
    """Two 3x3 convs; where the map shrinks, the shortcut is every second pixel with zero channels on both sides."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.stride, self.extra = stride, (width - inputs) // 2

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        if self.stride > 1 or self.extra:
            x = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.extra, self.extra))
        return F.relu(y + x)


class CifarResNet(nn.Module):
    """Depth 6n + 2 with ``blocks`` = n per stage; input [batch, 3, 32, 32]."""

    def __init__(self, blocks: int = 3, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = self._stage(16, 16, 1, blocks)
        self.layer2 = self._stage(16, 32, 2, blocks)
        self.layer3 = self._stage(32, 64, 2, blocks)
        self.linear = nn.Linear(64, classes)

    @staticmethod
    def _stage(inputs: int, width: int, stride: int, blocks: int) -> nn.Sequential:
        first = BasicBlock(inputs, width, stride)
        return nn.Sequential(first, *(BasicBlock(width, width, 1) for _ in range(blocks - 1)))

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.linear(x.mean((2, 3)))


def resnet20(classes: int = 10) -> CifarResNet:
    return CifarResNet(3, classes)


def resnet56(classes: int = 10) -> CifarResNet:
    return CifarResNet(9, classes)
