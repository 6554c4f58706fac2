"""Networks whose code fixes the number of examples, or makes a plain number of it."""

import torch
import torch.nn.functional as F
from networks import images
from torch import Tensor, nn

SHAPE = (3, 4, 4)


class Fixed(nn.Module):
    """``rows`` is written into a view, so the model takes batches of that size only."""

    def __init__(self, rows: int = 8) -> None:
        super().__init__()
        self.rows = rows
        self.first, self.norm = nn.Conv2d(3, 12, 3, padding=1), nn.BatchNorm2d(12)
        self.second, self.last = nn.Conv2d(12, 10, 3, padding=1), nn.Linear(160, 4)

    def mapped(self, x: Tensor) -> Tensor:
        return F.relu(self.second(F.relu(self.norm(self.first(x)))))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.mapped(x).view(self.rows, -1))


class One(Fixed):
    def __init__(self) -> None:
        super().__init__(1)


class Counted(Fixed):
    """It takes any batch, but no graph of it does: the size is a plain number in its code."""

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.mapped(x).reshape(len(list(x)), -1))


class Scaled(Fixed):
    """Its graph takes any batch, but computes something else for another size."""

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.mapped(x).flatten(1)) / len(list(x))


class Folded(nn.Module):
    """A batch of four is one long sequence within."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(6, 12), nn.Linear(12, 10), nn.Linear(10, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.second(F.relu(self.first(x.view(1, 20, 6)))))
        return self.last(x.view(4, 5, -1).mean(1))


def batches(rows: int, count: int, shape: tuple[int, ...] = SHAPE) -> list[Tensor]:
    return list(images(rows * count, shape=shape).split(rows))


def other_size(x: Tensor) -> Tensor:
    """The same examples and one more."""
    return torch.cat([x, x[:1]])
