"""Networks as users write them, each with a piece that pruning tools stumble over."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def conv(inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Convolution, BatchNorm and SiLU."""
    layer = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), nn.SiLU())


class C2f(nn.Module):
    """YOLOv8's block: split in two, a chain of residual bottlenecks on one half, everything joined."""

    def __init__(self, inputs: int, outputs: int, depth: int) -> None:
        super().__init__()
        half = outputs // 2
        self.enter, self.leave = conv(inputs, outputs, 1), conv(half * (2 + depth), outputs, 1)
        self.chain = nn.ModuleList(nn.Sequential(conv(half, half), conv(half, half)) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        maps = list(self.enter(x).chunk(2, 1))
        for block in self.chain:
            maps.append(maps[-1] + block(maps[-1]))
        return self.leave(torch.cat(maps, 1))


class Detector(nn.Module):
    """A small YOLOv8: C2f backbone, pooled pyramid, top-down joins, and a head of boxes and classes at two scales."""

    def __init__(self, classes: int = 20) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv(3, 16, 3, 2), conv(16, 32, 3, 2), C2f(32, 32, 1))
        self.stage3 = nn.Sequential(conv(32, 64, 3, 2), C2f(64, 64, 2))
        self.stage4 = nn.Sequential(conv(64, 128, 3, 2), C2f(128, 128, 1))
        self.pool_in, self.pool_out = conv(128, 64, 1), conv(256, 128, 1)
        self.top = C2f(192, 64, 1)
        self.boxes = nn.ModuleList(nn.Sequential(conv(c, 32), conv(32, 32), nn.Conv2d(32, 64, 1)) for c in (64, 128))
        self.scores = nn.ModuleList(
            nn.Sequential(conv(c, 32), conv(32, 32), nn.Conv2d(32, classes, 1)) for c in (64, 128)
        )

    def forward(self, x: Tensor) -> list[Tensor]:
        near = self.stage3(self.stem(x))
        far = self.pool_in(self.stage4(near))
        pools = [far]
        for _ in range(3):
            pools.append(F.max_pool2d(pools[-1], 5, 1, 2))
        far = self.pool_out(torch.cat(pools, 1))
        near = self.top(torch.cat([F.interpolate(far, scale_factor=2.0), near], 1))
        heads = zip(self.boxes, self.scores, (near, far), strict=True)
        return [torch.cat([boxes(m), scores(m)], 1).flatten(2) for boxes, scores, m in heads]


class UNet(nn.Module):
    """Three levels down and up: GroupNorm, transposed convolutions, skips joined."""

    def __init__(self) -> None:
        super().__init__()

        def level(a: int, b: int) -> nn.Sequential:
            return nn.Sequential(
                nn.Conv2d(a, b, 3, padding=1), nn.GroupNorm(4, b), nn.ReLU(), nn.Conv2d(b, b, 3, padding=1), nn.ReLU()
            )

        self.down = nn.ModuleList([level(3, 16), level(16, 32), level(32, 64)])
        self.up = nn.ModuleList([nn.ConvTranspose2d(64, 32, 2, 2), nn.ConvTranspose2d(32, 16, 2, 2)])
        self.merge, self.last = nn.ModuleList([level(64, 32), level(32, 16)]), nn.Conv2d(16, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept: list[Tensor] = []
        for i, level in enumerate(self.down):
            x = level(x if i == 0 else F.max_pool2d(x, 2))
            kept.append(x)
        for up, merge, skip in zip(self.up, self.merge, (kept[1], kept[0]), strict=True):
            x = merge(torch.cat([skip, up(x)], 1))
        return self.last(x)


class Generator(nn.Module):
    """DCGAN's generator: noise, a linear layer seen as a map, transposed convolutions, tanh."""

    def __init__(self) -> None:
        super().__init__()
        self.start = nn.Linear(32, 64 * 4 * 4)
        self.grow = nn.Sequential(
            nn.BatchNorm2d(64), nn.ReLU(),
            nn.ConvTranspose2d(64, 48, 4, 2, 1, bias=False), nn.BatchNorm2d(48), nn.ReLU(),
            nn.ConvTranspose2d(48, 24, 4, 2, 1, bias=False), nn.BatchNorm2d(24), nn.ReLU(),
            nn.ConvTranspose2d(24, 3, 4, 2, 1),
        )  # fmt: skip

    def forward(self, z: Tensor) -> Tensor:
        return torch.tanh(self.grow(self.start(z).view(z.size(0), -1, 4, 4)))


class Reader(nn.Module):
    """CRNN: convolutions, then an LSTM over columns and a linear layer per column."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 48, 3, padding=1), nn.ReLU(),
        )  # fmt: skip
        self.lstm, self.fc = nn.LSTM(48, 32, batch_first=True, bidirectional=True), nn.Linear(64, 11)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.lstm(self.features(x).mean(2).transpose(1, 2))[0])


class DenseBlocks(nn.Module):
    """Two DenseNet blocks with bottlenecks, and a transition that halves the map."""

    def __init__(self, growth: int = 12, depth: int = 4) -> None:
        super().__init__()
        self.stem, width = nn.Conv2d(3, 24, 3, padding=1), 24
        self.blocks, self.between = nn.ModuleList(), nn.ModuleList()
        for _ in range(2):
            block = nn.ModuleList()
            for _ in range(depth):
                norm, inner = nn.BatchNorm2d(width), conv(width, 4 * growth, 1)
                block.append(nn.Sequential(norm, nn.ReLU(), inner, nn.Conv2d(4 * growth, growth, 3, padding=1)))
                width += growth
            self.blocks.append(block)
            self.between.append(nn.Sequential(nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width // 2, 1)))
            width //= 2
        self.fc = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        blocks: Any = self.blocks
        for block, between in zip(blocks, self.between, strict=True):
            for layer in block:
                x = torch.cat([x, layer(x)], 1)
            x = F.avg_pool2d(between(x), 2)
        return self.fc(x.mean((2, 3)))


class Shuffle(nn.Module):
    """ShuffleNet v1's units: grouped 1 x 1 convolutions with their channels shuffled in between."""

    def __init__(self, width: int = 48, groups: int = 3) -> None:
        super().__init__()
        self.stem, self.groups = conv(3, width), groups
        self.units = nn.ModuleList(
            nn.ModuleList([conv(width, width, 1, groups=groups), conv(width, width, 3, groups=width),
                           nn.Conv2d(width, width, 1, groups=groups)])
            for _ in range(3)
        )  # fmt: skip
        self.fc = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        units: Any = self.units
        for first, depthwise, last in units:
            y = first(x)
            b, c, h, w = y.shape
            y = y.view(b, self.groups, c // self.groups, h, w).transpose(1, 2).reshape(b, c, h, w)
            x = F.relu(x + last(depthwise(y)))
        return self.fc(x.mean((2, 3)))


class LanguageModel(nn.Module):
    """A small Llama by hand: RMSNorm, rotary attention over a fused projection, SwiGLU, tied embedding."""

    def __init__(self, width: int = 64, heads: int = 4, depth: int = 3, words: int = 100) -> None:
        super().__init__()
        self.embed, self.heads = nn.Embedding(words, width), heads
        self.blocks = nn.ModuleList(
            nn.ModuleDict({
                "norm1": nn.RMSNorm(width), "qkv": nn.Linear(width, 3 * width, bias=False),
                "out": nn.Linear(width, width, bias=False), "norm2": nn.RMSNorm(width),
                "gate": nn.Linear(width, 3 * width, bias=False), "up": nn.Linear(width, 3 * width, bias=False),
                "down": nn.Linear(3 * width, width, bias=False),
            })
            for _ in range(depth)
        )  # fmt: skip
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, words, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, words: Tensor) -> Tensor:
        x = self.embed(words)
        for block in self.blocks:
            part: Any = block
            q, k, v = part["qkv"](part["norm1"](x)).chunk(3, -1)
            q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))
            seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + part["out"](seen.transpose(1, 2).flatten(2))
            y = part["norm2"](x)
            x = x + part["down"](F.silu(part["gate"](y)) * part["up"](y))
        return self.head(self.norm(x))


class Volume(nn.Module):
    """A network on volumes with anisotropic kernels, and a pixel-shuffling second output from a slice."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv3d(1, 12, (1, 3, 3), padding=(0, 1, 1)), nn.Conv3d(12, 24, 3, 2, 1)
        self.norm, self.fc = nn.InstanceNorm3d(24, affine=True), nn.Linear(24, 5)
        self.up, self.picture = nn.Conv2d(12, 32, 3, padding=1), nn.Conv2d(8, 3, 3, padding=1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        x = F.relu(self.one(x))
        picture = self.picture(F.pixel_shuffle(self.up(x[:, :, 0]), 2))
        return {"scores": self.fc(F.relu(self.norm(self.two(x))).mean((2, 3, 4))), "picture": picture}


class Waves(nn.Module):
    """WaveNet's gated, dilated one-dimensional convolutions with residual and skip sums."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.enter, self.leave = nn.Conv1d(1, width, 1), nn.Conv1d(width, 8, 1)
        self.inner = nn.ModuleList(nn.Conv1d(width, 2 * width, 3, padding=d, dilation=d) for d in (1, 2, 4))
        self.back = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(3))
        self.skip = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        x, total = self.enter(x), torch.zeros(())
        for inner, back, skip in zip(self.inner, self.back, self.skip, strict=True):
            signal, gate = inner(x).chunk(2, 1)
            y = torch.tanh(signal) * torch.sigmoid(gate)
            x, total = x + back(y), total + skip(y)
        return self.leave(F.relu(total))


MODELS: dict[str, tuple[type[nn.Module], tuple[int, ...]]] = {  # name -> class and the shape of one input
    "detector": (Detector, (3, 64, 64)),
    "unet": (UNet, (3, 32, 32)),
    "generator": (Generator, (32,)),
    "reader": (Reader, (1, 16, 64)),
    "dense": (DenseBlocks, (3, 32, 32)),
    "shuffle": (Shuffle, (3, 32, 32)),
    "language": (LanguageModel, (16,)),
    "volume": (Volume, (1, 8, 16, 16)),
    "waves": (Waves, (1, 64)),
}
