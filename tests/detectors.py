"""A small detector: a list of images in, a dict of boxes per image out, and code in between that cannot be traced."""

import torch
import torch.nn.functional as F
from networks import images
from torch import Tensor, nn


class Backbone(nn.Module):
    """Two maps [b, 8, h, w] and [b, 8, h / 2, w / 2] by name."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 12, 3, padding=1, bias=False), nn.BatchNorm2d(12)
        self.conv2 = nn.Conv2d(12, 8, 3, padding=1)
        self.conv3 = nn.Conv2d(8, 10, 3, 2, 1)
        self.conv4 = nn.Conv2d(10, 8, 1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        fine = self.conv2(F.relu(self.bn1(self.conv1(x))))
        return {"fine": fine, "coarse": self.conv4(F.relu(self.conv3(F.relu(fine))))}


class Head(nn.Module):
    """One score per position of every map, by the same weights."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.score = nn.Conv2d(8, 16, 3, padding=1), nn.Conv2d(16, 1, 1)

    def forward(self, maps: list[Tensor]) -> list[Tensor]:
        return [self.score(F.relu(self.conv(one))) for one in maps]


class Detector(nn.Module):
    """Resizes and stacks a list of images, scores positions, and looks at the best ones of each image."""

    def __init__(self, best: int = 5) -> None:
        super().__init__()
        self.backbone, self.rpn = Backbone(), nn.ModuleDict({"head": Head()})
        self.box = nn.Sequential(nn.Linear(8, 14), nn.ReLU(), nn.Linear(14, 6))
        self.best = best

    def forward(self, images, targets=None):
        if any(image.dim() != 3 for image in images):
            raise ValueError("images must be [3, h, w]")
        x = torch.cat([F.interpolate(image[None], scale_factor=16 / image.shape[-1]) for image in images])
        maps = self.backbone(x)
        scores = self.rpn["head"](list(maps.values()))
        fine = maps["fine"].flatten(2).transpose(1, 2)
        chosen = [one.flatten().topk(self.best).indices.tolist() for one in scores[0]]
        boxes = self.box(torch.cat([fine[i][at] for i, at in enumerate(chosen)]))
        if self.training:
            return {"loss": boxes.square().mean() + sum(s.square().mean() for s in scores)}
        return [{"boxes": one} for one in boxes.split(self.best)]


def detector(best: int = 5) -> Detector:
    torch.manual_seed(0)
    return Detector(best).eval()


def image_lists(batches: int = 4, count: int = 4, size: tuple[int, int] = (16, 16)) -> list[list[Tensor]]:
    """Batches as lists of images [3, h, w]."""
    return [list(images(count, seed, (3, *size))) for seed in range(batches)]
