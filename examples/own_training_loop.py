"""Prune a model of your own, then train it on with a plain PyTorch loop: a slim model is an ordinary module.

python examples/own_training_loop.py            # a few minutes on two cores
python examples/own_training_loop.py --quick    # few images, one epoch
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

import ldrf
from ldrf.data.sources import Batches, open_data
from ldrf.measuring.accuracy import measure_accuracy

QUICK = "--quick" in sys.argv
IMAGES, EPOCHS = (128, 1) if QUICK else (2000, 10)


class SmallNet(nn.Module):
    """Your model: nothing in it knows of ldrf."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32)
        self.conv2, self.bn2 = nn.Conv2d(32, 48, 3, 2, 1, bias=False), nn.BatchNorm2d(48)
        self.conv3, self.bn3 = nn.Conv2d(48, 64, 3, 2, 1, bias=False), nn.BatchNorm2d(64)
        self.head = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        x = F.relu(self.bn3(self.conv3(x)))
        return self.head(x.mean((2, 3)))


def train(model: nn.Module, batches: Batches, epochs: int, rate: float) -> None:
    """Your training loop, the same before and after pruning."""
    # Make the optimiser after pruning: the slim model has tensors of its own.
    optimiser = torch.optim.Adam(model.parameters(), lr=rate)
    model.train()
    for _ in range(epochs):
        for images, labels in batches:
            loss = F.cross_entropy(model(images), labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    model.eval()


def main() -> None:
    torch.manual_seed(0)
    batches, test = open_data("sample", "train").take(IMAGES), open_data("sample", "test").take(IMAGES)
    model = SmallNet()
    train(model, batches, EPOCHS, rate=1e-3)

    config = ldrf.PruneConfig(steps=5) if QUICK else None
    result = ldrf.prune(model, batches, speedup=2.0, config=config)
    print(result)
    slim = result.model
    right_away = measure_accuracy(slim, test).top1

    # A tenth of the rate: the slim model starts near where the dense one ended, not at random weights.
    train(slim, batches, EPOCHS, rate=1e-4)
    dense, trained_on = measure_accuracy(model, test).top1, measure_accuracy(slim, test).top1
    print(f"\ntop-1: dense {dense:.2f} %, slim {right_away:.2f} %, slim trained on {trained_on:.2f} %")


if __name__ == "__main__":
    main()
