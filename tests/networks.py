"""Small networks, one for each kind of connection the core has to understand."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ldrf.calibration.network import Network
from ldrf.channels.walk import Flow, follow_channels
from ldrf.inputs import Inputs
from ldrf.tracing.interpreter import Weights, run
from ldrf.tracing.lean_run import input_values
from ldrf.tracing.trace import Trace, trace
from ldrf.units.indices import stays

IMAGE = (3, 8, 8)


def images(rows: int = 32, seed: int = 0, shape: tuple[int, ...] = IMAGE) -> Tensor:
    """Correlated random images: each is a mixture of a few patterns, so that neurons can replace each other."""
    generator = torch.Generator().manual_seed(seed)
    patterns = torch.randn(6, *shape, generator=torch.Generator().manual_seed(99))
    mixed = torch.randn(rows, 6, generator=generator) @ patterns.flatten(1)
    return mixed.view(rows, *shape) + 0.3 * torch.randn(rows, *shape, generator=generator)


class Chain(nn.Module):
    """conv -> BatchNorm -> ReLU, twice, pooled between, then global pool and a linear layer."""

    def __init__(self, first: int = 12, second: int = 16) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, first, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(first)
        self.conv2 = nn.Conv2d(first, second, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(second)
        self.fc = nn.Linear(second, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 2)
        return self.fc(F.relu(self.bn2(self.conv2(x))).mean((2, 3)))


class BasicBlock(nn.Module):
    """The CIFAR ResNet's block with option A: a strided, zero-padded shortcut without weights."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.stride, self.extra = stride, outputs - inputs

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        if self.extra:
            x = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.extra // 2, self.extra // 2))
        return F.relu(y + x)


class Residual(nn.Module):
    """Stem and two basic blocks, the second with a zero-padded shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(8)
        self.block1, self.block2 = BasicBlock(8, 8, 1), BasicBlock(8, 12, 2)
        self.fc = nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.block2(self.block1(F.relu(self.bn(self.stem(x)))))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


class InPlace(nn.Module):
    """A basic block as torchvision writes it: one ReLU for all calls, which works in place, and a sum in place."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width, inner, 3, 1, 1, bias=False), nn.BatchNorm2d(inner)
        self.conv2, self.bn2 = nn.Conv2d(inner, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        y += x
        return self.relu(y)


class Deep(nn.Module):
    """Three branches that can be left out: two blocks in place, and one with its norms first and no bias at its end."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.one, self.two = nn.Conv2d(3, 16, 3, padding=1), InPlace(16, 24), InPlace(16, 20)
        self.norm, self.enter = nn.BatchNorm2d(16), nn.Conv2d(16, 24, 1)
        self.leave, self.head = nn.Conv2d(24, 16, 3, padding=1, bias=False), nn.Conv2d(16, 8, 1)
        self.fc = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.two(self.one(F.relu(self.stem(x))))
        x = x + self.leave(F.relu(self.enter(F.relu(self.norm(x), inplace=True))))
        return self.fc(F.relu(self.head(x)).mean((2, 3)))


class Tokens(nn.Module):
    """Branches of a transformer: attention that returns a tuple, and an MLP whose outputs are scaled."""

    def __init__(self) -> None:
        super().__init__()
        self.patch, self.norm1, self.norm2 = nn.Conv2d(3, 12, 4, 4), nn.LayerNorm(12), nn.LayerNorm(12)
        self.attention = nn.MultiheadAttention(12, 3, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(12, 20), nn.GELU(), nn.Linear(20, 12))
        self.scale, self.head = nn.Parameter(torch.ones(12)), nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        x = x + self.scale * self.mlp(self.norm2(x))
        return self.head(x.mean(1))


class Bottleneck(nn.Module):
    """A 1 x 1, 3 x 3, 1 x 1 branch beside a projected shortcut, as in ResNet-50."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.conv1, self.bn1 = nn.Conv2d(8, 6, 1, bias=False), nn.BatchNorm2d(6)
        self.conv2, self.bn2 = nn.Conv2d(6, 6, 3, 2, 1, bias=False), nn.BatchNorm2d(6)
        self.conv3, self.bn3 = nn.Conv2d(6, 16, 1, bias=False), nn.BatchNorm2d(16)
        self.down, self.bn4 = nn.Conv2d(8, 16, 1, 2, bias=False), nn.BatchNorm2d(16)
        self.fc = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem(x))
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        x = F.relu(self.bn3(self.conv3(y)) + self.bn4(self.down(x)))
        return self.fc(x.mean((2, 3)))


class Flattened(nn.Module):
    """conv -> pool -> flatten -> linear: every neuron is behind several columns of the linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 10, 3)
        self.fc1, self.fc2 = nn.Linear(90, 14), nn.Linear(14, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv(x)), 2).flatten(1)
        return self.fc2(F.gelu(self.fc1(x)))


class Mlp(nn.Module):
    """Linear layers only, one without a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(192, 16), nn.Linear(16, 12, bias=False)
        self.last = nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.second(F.relu(self.first(x.flatten(1))))))


class Inverted(nn.Module):
    """MobileNetV2's block: 1 x 1 to more channels, depthwise 3 x 3, 1 x 1 back, added to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, 2, 1)
        self.expand, self.bn1 = nn.Conv2d(6, 18, 1, bias=False), nn.BatchNorm2d(18)
        self.depth, self.bn2 = nn.Conv2d(18, 18, 3, 1, 1, groups=18, bias=False), nn.BatchNorm2d(18)
        self.project, self.bn3 = nn.Conv2d(18, 6, 1, bias=False), nn.BatchNorm2d(6)
        self.fc = nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = F.relu6(self.bn1(self.expand(x)))
        y = F.relu6(self.bn2(self.depth(y)))
        return self.fc((x + self.bn3(self.project(y))).mean((2, 3)))


class VitBlock(nn.Module):
    """One transformer block on image patches; only the inner width of its MLP is free."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 16, 4, 4)
        self.norm1, self.norm2 = nn.LayerNorm(16), nn.LayerNorm(16)
        self.qkv, self.proj = nn.Linear(16, 48), nn.Linear(16, 16)
        self.fc1, self.fc2 = nn.Linear(16, 24), nn.Linear(24, 16)
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        q, k, v = (t.unsqueeze(1) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v).squeeze(1))
        x = x + self.fc2(F.gelu(self.fc1(self.norm2(x))))
        return self.head(x.mean(1))


class Branches(nn.Module):
    """One producer read by three layers of different kinds, whose outputs leave as a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.bn = nn.Conv2d(3, 12, 3, padding=1), nn.BatchNorm2d(12)
        self.near, self.wide = nn.Conv2d(12, 4, 1), nn.Conv2d(12, 4, 3, 2, 1)
        self.fc = nn.Linear(12, 5)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        x = F.silu(self.bn(self.trunk(x)))
        return {"scores": self.fc(x.mean((2, 3))), "near": self.near(x), "wide": self.wide(x)}


class TwoInputs(nn.Module):
    """An image and a vector in, two tensors out."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.read = nn.Conv2d(3, 10, 3, padding=1), nn.Linear(10, 6)
        self.vector, self.mix = nn.Linear(4, 9), nn.Linear(9, 6)
        self.head = nn.Linear(6, 5)

    def forward(self, image: Tensor, vector: Tensor) -> tuple[Tensor, Tensor]:
        seen = self.read(F.relu(self.conv(image)).mean((2, 3)))
        said = self.mix(F.relu(self.vector(vector)))
        return self.head(seen * said), said


class CalledTwice(nn.Module):
    """``inner`` runs twice, so neither it nor what feeds it can change; ``free`` can."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.inner = nn.Linear(192, 12), nn.Linear(12, 12)
        self.free, self.last = nn.Linear(12, 14), nn.Linear(14, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.first(x.flatten(1)))
        x = F.relu(self.inner(F.relu(self.inner(x))))
        return self.last(F.relu(self.free(x)))


class Tied(nn.Module):
    """``one`` and ``two`` are different modules that share their weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(192, 12)
        self.one, self.two = nn.Linear(12, 12), nn.Linear(12, 12)
        self.two.weight = self.one.weight
        self.free, self.last = nn.Linear(12, 14), nn.Linear(14, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.first(x.flatten(1)))
        x = F.relu(self.two(F.relu(self.one(x))))
        return self.last(F.relu(self.free(x)))


class Carriers(nn.Module):
    """Per-channel carriers: PReLU, a BatchNorm behind a linear layer, a learned scale, an affine-free BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 10, 3, padding=1), nn.BatchNorm2d(10, affine=False)
        self.prelu = nn.PReLU(10)
        self.conv2 = nn.Conv2d(10, 12, 3, padding=1)
        self.scale = nn.Parameter(torch.rand(12, 1, 1) + 0.5)
        self.fc1, self.bn2, self.fc2 = nn.Linear(12, 14), nn.BatchNorm1d(14), nn.Linear(14, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.prelu(self.bn1(self.conv1(x)))
        x = F.relu(self.conv2(x) * self.scale)
        return self.fc2(F.relu(self.bn2(self.fc1(x.mean((2, 3))))))


class LinearOnly(nn.Module):
    """No activation between its layers: nothing is lost down to the rank of the product."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(192, 12), nn.Linear(12, 10), nn.Linear(10, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.second(self.first(x.flatten(1))))


class Sequence1d(nn.Module):
    """One-dimensional convolutions with stride and dilation."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv1d(3, 9, 5, 2, 2), nn.BatchNorm1d(9)
        self.conv2 = nn.Conv1d(9, 8, 3, padding=2, dilation=2)
        self.fc = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.leaky_relu(self.bn1(self.conv1(x.flatten(2))), 0.1)
        return self.fc(F.relu(self.conv2(x)).mean(2))


class Dense(nn.Module):
    """DenseNet's block: every layer reads all that came before it, joined, through a norm of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, padding=1)
        self.norm1, self.conv1 = nn.BatchNorm2d(6), nn.Conv2d(6, 4, 3, padding=1, bias=False)
        self.norm2, self.conv2 = nn.BatchNorm2d(10), nn.Conv2d(10, 4, 3, padding=1, bias=False)
        self.norm3, self.fc = nn.BatchNorm2d(14), nn.Linear(14, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = torch.cat([x, self.conv1(F.relu(self.norm1(x)))], 1)
        x = torch.cat([x, self.conv2(F.relu(self.norm2(x)))], 1)
        return self.fc(F.relu(self.norm3(x)).mean((2, 3)))


class Grouped(nn.Module):
    """ResNeXt's block: a grouped convolution between two 1 x 1 ones, and a gate in two small layers (SE)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 12, 1, bias=False), nn.BatchNorm2d(12)
        self.conv2, self.bn2 = nn.Conv2d(12, 12, 3, padding=1, groups=4, bias=False), nn.BatchNorm2d(12)
        self.squeeze, self.excite = nn.Conv2d(12, 5, 1), nn.Conv2d(5, 12, 1)
        self.conv3, self.fc = nn.Conv2d(12, 8, 1), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))
        x = x * torch.sigmoid(self.excite(F.relu(self.squeeze(x.mean((2, 3), keepdim=True)))))
        return self.fc(F.relu(self.conv3(x)).mean((2, 3)))


class Shuffled(nn.Module):
    """ShuffleNet's unit: half of the channels pass, half are worked on, joined and shuffled; twice."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.one, self.two = (self._branch() for _ in range(2))
        self.fc = nn.Linear(8, 5)

    def _branch(self) -> nn.Module:
        depthwise = nn.Conv2d(4, 4, 3, padding=1, groups=4)
        return nn.Sequential(nn.Conv2d(4, 4, 1), nn.ReLU(), depthwise, nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem(x))
        for branch in (self.one, self.two):
            left, right = x.chunk(2, 1)
            x = torch.cat([left, branch(right)], 1)
            b, c, h, w = x.shape
            x = x.view(b, 2, c // 2, h, w).transpose(1, 2).reshape(b, c, h, w)
        return self.fc(x.mean((2, 3)))


class UNet(nn.Module):
    """Down, up by transposed convolutions, joined with what was there before; the second grows by shuffled pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2 = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 8, 3, 2, 1)
        self.down3 = nn.Conv2d(8, 12, 3, 2, 1)
        self.up1, self.bn = nn.ConvTranspose2d(12, 8, 4, 2, 1, bias=False), nn.BatchNorm2d(8)
        self.join1, self.up2 = nn.Conv2d(16, 8, 1), nn.Conv2d(8, 16, 1)
        self.join2 = nn.ConvTranspose2d(10, 2, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        near = F.relu(self.down1(x))
        middle = F.relu(self.down2(near))
        x = F.relu(self.bn(self.up1(F.relu(self.down3(middle)))))
        x = F.relu(self.join1(torch.cat([middle, x], 1)))
        x = F.pixel_shuffle(self.up2(x), 2)
        return self.join2(torch.cat([near, F.relu(x)], 1))


class Normed(nn.Module):
    """Norms over several channels at once: by groups on a map, over all channels of a token."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8)
        self.conv2, self.norm2 = nn.Conv2d(8, 10, 3, padding=1), nn.LayerNorm(10)
        self.fc = nn.Linear(10, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv2(F.relu(self.norm1(self.conv1(x))))
        return self.fc(F.gelu(self.norm2(x.permute(0, 2, 3, 1))).mean((1, 2)))


class Gated(nn.Module):
    """A block of a language model: tokens, a gated MLP (SwiGLU) in two layers, and one whose halves gate each other."""

    def __init__(self) -> None:
        super().__init__()
        self.patch, self.norm = nn.Conv2d(3, 8, 4, 4), nn.LayerNorm(8)
        self.gate, self.up, self.down = nn.Linear(8, 12, bias=False), nn.Linear(8, 12), nn.Linear(12, 8)
        self.both, self.back, self.head = nn.Linear(8, 20), nn.Linear(10, 8), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        y = self.norm(x)
        x = x + self.down(F.silu(self.gate(y)) * self.up(y))
        x = x + self.back(F.glu(self.both(x), -1))
        return self.head(x.mean(1))


class Heads(nn.Module):
    """Attention whose heads are counted from the width, as in Llama: whole heads can go."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 12, 4, 4)
        self.q, self.k, self.v, self.o = (nn.Linear(12, 12) for _ in range(4))
        self.head = nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        q, k, v = (layer(x).view(*x.shape[:2], -1, 3).transpose(1, 2) for layer in (self.q, self.k, self.v))
        seen = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(*x.shape[:2], -1)
        return self.head((x + self.o(seen)).mean(1))


class Cross(nn.Module):
    """YOLO's C2f: one convolution split in two, each half and every later map joined at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Conv2d(3, 8, 1)
        self.one, self.two = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.leave, self.fc = nn.Conv2d(16, 8, 1), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        maps = list(F.silu(self.enter(x)).chunk(2, 1))
        maps.append(F.silu(self.one(maps[-1])))
        maps.append(F.silu(self.two(maps[-1])))
        return self.fc(F.silu(self.leave(torch.cat(maps, 1))).mean((2, 3)))


class Uneven(nn.Module):
    """Transposed convolutions in groups, and paddings that are wider on one side."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.up = nn.Conv2d(3, 12, 3, padding=1), nn.ConvTranspose2d(12, 12, 4, 2, 1, groups=12)
        self.norm, self.pairs = nn.BatchNorm2d(12), nn.ConvTranspose2d(12, 8, 2, 2, groups=4)
        self.even = nn.Conv2d(8, 10, 4, padding="same")
        self.odd = nn.Conv2d(10, 10, (2, 3), padding="same", dilation=(1, 2))
        self.fc = nn.Linear(10, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.pairs(F.relu(self.norm(self.up(F.relu(self.enter(x)))))))
        return self.fc(F.relu(self.odd(F.relu(self.even(x)))).mean((2, 3)))


def settled(model: nn.Module, seed: int = 0) -> nn.Module:
    """The model with random weights, and norms whose statistics and affine parts are not the trivial ones."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        fan = max(parameter[0].numel(), 1) if parameter.ndim > 1 else 10
        parameter.data = torch.randn(parameter.shape, generator=generator) * (1.5 / fan) ** 0.5
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            size = module.num_features
            module.running_mean = 0.2 * torch.randn(size, generator=generator)
            module.running_var = 0.5 + torch.rand(size, generator=generator)
            if module.affine:
                module.weight.data = 0.5 + torch.rand(size, generator=generator)
        elif isinstance(module, nn.LayerNorm):
            module.weight.data = 0.5 + torch.rand(module.weight.shape, generator=generator)
    return model.eval()


def unread(net: Network, kept: Mapping[str, Tensor]) -> nn.Module:
    """The dense model in which no consumer reads the neurons that go: what a plain cut must compute."""
    model = copy.deepcopy(net.model)
    for unit in net.units:
        read = [(c.layer.weight, 1 - c.layer.row_dim, c.channels) for c in unit.consumers]
        heads = [
            (s.tensor, s.dim, s.ids)
            for s in unit.slices
            if s.tensor.removesuffix(".weight") in unit.tables or ".weight_ih_" in s.tensor
        ]
        for name, dim, ids in read + heads:
            gone = torch.as_tensor((~stays(ids, kept[unit.name])).nonzero()[0])
            model.get_parameter(name).data.index_fill_(dim, gone, 0)
    return model


def make(kind: type[nn.Module], seed: int = 0) -> nn.Module:
    """A settled network of this class."""
    torch.default_generator.manual_seed(seed)
    return settled(kind(), seed)


@dataclass(frozen=True)
class Case:
    """A network and what to feed it."""

    kind: type[nn.Module]
    batch: Callable[[int], object] = images

    def __str__(self) -> str:
        return self.kind.__name__


def two_inputs(rows: int = 32, seed: int = 0) -> tuple[Tensor, Tensor]:
    return images(rows, seed), images(rows, seed + 1, (4,))


CASES = (
    *map(Case, (Chain, Residual, Bottleneck, Flattened, Mlp, Inverted, VitBlock, Branches)),
    Case(TwoInputs, two_inputs),
    *map(Case, (CalledTwice, Tied, Carriers, LinearOnly, Sequence1d)),
    *map(Case, (Dense, Grouped, Shuffled, UNet, Normed, Gated, Heads, Cross)),
)


# A file that names a network and its data to the command line: plugin.py:net and plugin.py:data.
NET = """
import torch
from torch import nn

def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(128, 4))

def data(split):
    generator = torch.Generator().manual_seed(len(split))
    for _ in range(4):
        yield torch.rand(16, 3, 8, 8, generator=generator), torch.randint(0, 4, (16,), generator=generator)
"""


def graph_outputs(graph: Trace, weights: Weights, inputs: Inputs) -> list[Tensor]:
    """What a traced graph gives with these weights."""
    values = run(graph, weights, graph.nodes, input_values(graph, inputs))
    return [values[name] for name in graph.outputs]


def assert_same_outputs(model: nn.Module, graph: Trace, weights: Weights, inputs: Inputs) -> None:
    """A model and its graph give the same."""
    with torch.no_grad():
        expected, outputs = tree_leaves(inputs.call(model)), graph_outputs(graph, weights, inputs)
    assert len(outputs) == len(expected)
    for one, other in zip(outputs, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


class Between(nn.Module):
    """conv (6 channels on a 4 x 4 map) -> ``carry`` -> nothing else."""

    def __init__(self, carry: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 1)
        self.carry = carry

    def forward(self, x: Tensor) -> Tensor:
        return self.carry(self.conv(x))


def flow_of(carry: Callable[[Tensor], Tensor]) -> tuple[Trace, Flow]:
    """Where the channels of a convolution go in ``carry``."""
    graph = trace(Between(carry).eval(), Inputs((torch.randn(2, 3, 4, 4),), {}))
    return graph, follow_channels(graph)
