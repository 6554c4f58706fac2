"""Random networks for the fuzzer: a list of pieces, each drawn with its settings, on top of one another."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportOperatorIssue=false
# pyright: reportOptionalMemberAccess=false

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from networks import images, settled
from torch import Tensor, nn

SHAPE = (3, 6, 6)
WIDTHS = (4, 6, 8, 12)
ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU, "silu": nn.SiLU, "none": nn.Identity, "leaky": nn.LeakyReLU}


@dataclass(frozen=True)
class Piece:
    """One drawn piece: its kind, the width it makes, and small choices."""

    kind: str
    width: int
    kernel: int
    norm: str
    activation: str
    flag: bool


KINDS = (
    "conv", "strided", "depthwise", "grouped", "residual", "gate", "dense", "branches", "halves", "shuffle", "pool",
    "transposed", "pixels", "glu", "product", "shared", "scale", "volume", "upsample", "same", "projected", "line",
    "skip", "stages", "last", "recurrent", "whole", "script", "twice", "counted",
)  # fmt: skip

pieces = st.builds(
    Piece,
    kind=st.sampled_from(KINDS),
    width=st.sampled_from(WIDTHS),
    kernel=st.sampled_from((1, 3)),
    norm=st.sampled_from(("none", "batch", "batch", "group", "rms", "instance", "each")),
    activation=st.sampled_from(tuple(ACTIVATIONS)),
    flag=st.booleans(),
)


@dataclass(frozen=True)
class Drawn:
    """A network's plan: pieces on maps, then a tail, how it ends, and what it is given beside images."""

    pieces: tuple[Piece, ...]
    tail: str
    outputs: int
    seed: int
    beside: str = "nothing"


plans = st.builds(
    Drawn,
    pieces=st.lists(pieces, min_size=1, max_size=6).map(tuple),
    tail=st.sampled_from(("mean", "flatten", "tokens", "map")),
    outputs=st.sampled_from((1, 2)),
    seed=st.integers(0, 2**16),
    beside=st.sampled_from(("nothing", "nothing", "vector", "ids", "tied")),
)


def convolution(inputs: int, piece: Piece, outputs: int | None = None, **options: Any) -> nn.Sequential:
    """Convolution, norm and activation as drawn."""
    made = piece.width if outputs is None else outputs
    layer = nn.Conv2d(inputs, made, piece.kernel, padding=piece.kernel // 2, bias=piece.flag, **options)
    norms = {
        "none": nn.Identity,
        "batch": lambda: nn.BatchNorm2d(made),
        "group": lambda: nn.GroupNorm(2 - made % 2, made),
        "rms": lambda: Rms(made),
        "instance": lambda: nn.InstanceNorm2d(made, affine=piece.flag),
        "each": lambda: nn.GroupNorm(made, made),
    }
    return nn.Sequential(layer, norms[piece.norm](), ACTIVATIONS[piece.activation]())


class Rms(nn.Module):
    """A norm over channels, written out."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width, 1, 1) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-5) * self.scale


class Block(nn.Module):
    """One piece as a module that maps [b, inputs, h, w] to [b, self.outputs, h', w']."""

    def __init__(self, inputs: int, piece: Piece) -> None:
        super().__init__()
        self.kind, self.flag, self.outputs = piece.kind, piece.flag, piece.width
        kind, n = piece.kind, inputs
        if kind in ("depthwise", "residual", "gate", "pool", "shuffle", "scale", "halves", "upsample", "last"):
            self.outputs = n
        if kind == "strided":
            self.one = convolution(n, piece, stride=2)
        elif kind == "depthwise":
            self.one = convolution(n, piece, n, groups=n)
        elif kind == "grouped":
            self.one, self.two = convolution(n, piece), convolution(piece.width, piece, groups=2)
        elif kind == "residual":
            self.one, self.two = convolution(n, piece), convolution(piece.width, piece, n)
        elif kind == "gate":
            self.one, self.two = nn.Conv2d(n, 3, 1), nn.Conv2d(3, n, 1)
        elif kind == "dense":
            self.one, self.outputs = convolution(n, piece), n + piece.width
        elif kind == "branches":
            self.one, self.two = convolution(n, piece), convolution(n, piece, 4)
            self.outputs = piece.width + 4
        elif kind == "halves":
            self.one = convolution(n // 2, piece, n // 2)
        elif kind == "transposed":
            stride = 2 if piece.flag else 1
            self.one = nn.ConvTranspose2d(n, piece.width, 4 if piece.flag else 3, stride, 1)
        elif kind == "upsample":
            self.one = nn.ConvTranspose2d(n, n, 2, 2, groups=2 if piece.flag else n)
        elif kind == "same":
            kernel = 4 if piece.kernel == 3 else (2, 1)
            self.one = nn.Conv2d(n, piece.width, kernel, padding="same", bias=piece.flag)
        elif kind in ("pixels", "glu"):
            self.one = convolution(n, piece, piece.width * (4 if kind == "pixels" else 2))
        elif kind == "product":
            self.one, self.two = convolution(n, piece), convolution(n, piece)
        elif kind == "shared":
            self.one, self.outputs = convolution(n, piece, n), n
        elif kind == "scale":
            self.factor = nn.Parameter(torch.rand(n, 1, 1) + 0.5)
        elif kind == "volume":
            self.one = nn.Conv3d(n, piece.width, (1, 3, 3), padding=(0, 1, 1))
        elif kind == "projected":
            stride = 2 if piece.flag else 1
            self.one, self.two = convolution(n, piece, stride=stride), convolution(piece.width, piece)
            self.three = nn.Conv2d(n, piece.width, 1, stride)
        elif kind == "line":
            self.one = nn.Conv1d(n, piece.width, piece.kernel, padding=piece.kernel // 2)
        elif kind == "skip":
            self.one, self.two = convolution(n, piece, stride=2), convolution(piece.width, piece)
            self.outputs = n + piece.width
        elif kind == "stages":
            half = piece.width // 2
            self.one, self.two = convolution(n, piece), convolution(half, piece, half)
            self.three = convolution(3 * half, piece)
        elif kind == "last":
            self.one, self.two = nn.Conv2d(n, n, 3, padding=1, groups=n), nn.LayerNorm(n)
            self.three, self.four = nn.Linear(n, piece.width), nn.Linear(piece.width, n)
            self.factor = nn.Parameter(torch.rand(n) + 0.5) if piece.flag else 1.0
        elif kind == "recurrent":
            kind = nn.GRU if piece.flag else nn.LSTM
            self.one = kind(n, piece.width, batch_first=True, bidirectional=piece.kernel == 1)
            self.outputs = piece.width * (2 if piece.kernel == 1 else 1)
        elif kind == "script":
            self.one, self.two = convolution(n, piece), torch.jit.script(nn.Hardswish())
        elif kind in ("conv", "whole", "twice", "counted"):
            self.one = convolution(n, piece)

    def forward(self, x: Tensor) -> Tensor:
        kind = self.kind
        if kind == "residual":
            return F.relu(x + self.two(self.one(x)))
        if kind == "grouped":
            return self.two(self.one(x))
        if kind == "gate":
            return x * torch.sigmoid(self.two(F.relu(self.one(x.mean((2, 3), keepdim=True)))))
        if kind == "dense":
            return torch.cat([x, self.one(x)], 1)
        if kind == "branches":
            return torch.cat([self.one(x), F.relu(self.two(x))], 1)
        if kind == "halves":
            left, right = x.chunk(2, 1)
            return torch.cat([left, self.one(right)], 1)
        if kind == "shuffle":
            b, c, h, w = x.shape
            return x.view(b, 2, c // 2, h, w).transpose(1, 2).reshape(b, c, h, w)
        if kind == "pool":
            return F.avg_pool2d(x, 3, 1, 1) if self.flag else F.max_pool2d(x, 3, 1, 1)
        if kind == "pixels":
            return F.avg_pool2d(F.pixel_shuffle(self.one(x), 2), 2)
        if kind == "upsample":
            return F.avg_pool2d(self.one(x), 2)
        if kind == "glu":
            return F.glu(self.one(x), 1)
        if kind == "product":
            return self.one(x) * torch.sigmoid(self.two(x))
        if kind == "shared":
            return self.one(self.one(x))
        if kind == "scale":
            return x * self.factor
        if kind == "volume":
            return self.one(x.unsqueeze(2)).squeeze(2)
        if kind == "projected":
            return F.relu(self.three(x) + self.two(self.one(x)))
        if kind == "line":
            return self.one(x.flatten(2)).unflatten(2, x.shape[2:])
        if kind == "skip":
            return torch.cat([x, F.interpolate(self.two(self.one(x)), size=x.shape[2:])], 1)
        if kind == "stages":
            left, right = self.one(x).chunk(2, 1)
            return self.three(torch.cat([left, right, self.two(right)], 1))
        if kind == "last":
            y = self.two(self.one(x).permute(0, 2, 3, 1))
            return x + (self.four(F.gelu(self.three(y))) * self.factor).permute(0, 3, 1, 2)
        if kind == "recurrent":
            steps = F.adaptive_avg_pool2d(x, (1, 3)).flatten(2).transpose(1, 2)
            return self.one(steps)[0].transpose(1, 2).unsqueeze(2)
        if kind == "whole":
            return (self.one(x).chunk(1, 1) if self.flag else self.one(x).split(self.outputs, 1))[0]
        if kind == "script":
            return self.two(self.one(x))
        if kind == "twice":  # which cannot be trained
            y = self.one(x) * 1
            return F.relu_(y) + F.relu_(y)
        if kind == "counted":  # the graph fixes the batch
            return self.one(x).reshape(len(list(x)), -1, *x.shape[2:])
        return self.one(x)


class Tokens(nn.Module):
    """A transformer block: attention, then a plain or gated MLP.

    Heads are counted from the width, or there are two whose values have a width of their own, or whose queries and
    keys have one too, or which share it, or whose width is counted from another layer's.
    """

    def __init__(self, width: int, gated: bool, heads: str) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2, self.each = nn.LayerNorm(width), nn.LayerNorm(width), width // 2
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.qkv = nn.Linear(width, 3 * width) if heads in ("packed", "tied") else None
        self.up, self.down = nn.Linear(width, 10), nn.Linear(10, width)
        self.gate = nn.Linear(width, 10) if gated else None

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.o(self.seen(self.norm1(x)).transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return x + self.down(F.gelu(self.up(y)) if self.gate is None else F.silu(self.gate(y)) * self.up(y))

    def seen(self, y: Tensor) -> Tensor:
        counted = lambda z: z.view(z.size(0), z.size(1), -1, self.each).transpose(1, 2)  # noqa: E731
        two = lambda z: z.unflatten(-1, (2, -1)).transpose(1, 2)  # noqa: E731
        if self.qkv is not None and self.heads == "tied":  # their width is counted from that of another layer
            b, t, width = y.shape
            return F.scaled_dot_product_attention(*self.qkv(y).reshape(b, t, 3, 2, width // 2).permute(2, 0, 3, 1, 4))
        if self.qkv is not None:
            return F.scaled_dot_product_attention(*(two(z) for z in self.qkv(y).chunk(3, -1)))
        q, k, v = self.q(y), self.k(y), self.v(y)
        if self.heads == "own":
            return (two(q) @ two(k).transpose(-1, -2) * 0.5).softmax(-1) @ two(v)
        return F.scaled_dot_product_attention(counted(q), counted(k), (two if self.heads == "values" else counted)(v))


class Stream(nn.Module):
    """Maps [b, c, h, w] as tokens [b, t, c], behind a class token and with a table of positions where asked for."""

    def __init__(self, width: int, token: bool, positions: bool) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, width)) if token else None
        self.positions = nn.Embedding(8, width) if positions else None

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(2).transpose(1, 2)
        if self.token is not None:
            x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1)
        return x if self.positions is None else x + self.positions(torch.arange(x.shape[1]))


class Built(nn.Module):
    """The network of a plan, on images [b, 3, 6, 6]."""

    def __init__(self, plan: Drawn) -> None:
        super().__init__()
        torch.default_generator.manual_seed(plan.seed)
        self.plan, width = plan, 6
        self.stem, self.blocks = nn.Conv2d(3, width, 3, padding=1), nn.ModuleList()
        for piece in plan.pieces:
            self.blocks.append(Block(width, piece))
            width = self.blocks[-1].outputs  # pyright: ignore[reportAssignmentType]
        self.shrink = nn.AdaptiveAvgPool2d(2)
        heads = "tied" if plan.seed % 11 == 7 else ("counted", "values", "own", "packed")[plan.seed // 2 % 4]
        self.tokens = Tokens(width, plan.seed % 2 == 0, heads) if plan.tail == "tokens" else None
        drawn = plan.seed % 5 in (0, 4), plan.seed % 7 in (0, 1, 2)
        self.stream = Stream(width, *drawn) if plan.tail == "tokens" else None
        self.fc = nn.Linear(width * 4 if plan.tail == "flatten" else width, 5)
        self.picture = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor | dict[str, Tensor]:
        return self.ended(self.begun(x))

    def begun(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem(x))
        for block in self.blocks:
            x = block(x)
        return x

    def ended(self, x: Tensor) -> Tensor | dict[str, Tensor]:
        tail = self.plan.tail
        if tail == "map":
            return self.picture(x)
        if tail == "flatten":
            scores = self.fc(self.shrink(x).flatten(1))
        elif self.tokens is not None and self.stream is not None:
            scores = self.fc(self.tokens(self.stream(self.shrink(x))).mean(1))
        else:
            scores = self.fc(x.mean((2, 3)))
        return {"scores": scores, "picture": self.picture(x)} if self.plan.outputs == 2 else scores


class Told(Built):
    """The same with a second input, a vector [b, 4] or a class [b], whose embedding the last layer may share."""

    def __init__(self, plan: Drawn) -> None:
        super().__init__(plan)
        width = self.picture.in_channels
        told = nn.Sequential(nn.Linear(4, 9), nn.ReLU(), nn.Linear(9, width))
        self.told = told if plan.beside == "vector" else nn.Embedding(5, width)
        if plan.beside == "tied" and plan.tail != "flatten":
            self.fc.weight = self.told.weight

    def forward(self, x: Tensor, beside: Tensor) -> Tensor | dict[str, Tensor]:
        return self.ended(self.begun(x) + self.told(beside)[..., None, None])


def built(plan: Drawn) -> Built:
    """The network of a plan, with random weights."""
    return settled((Built if plan.beside == "nothing" else Told)(plan), plan.seed)  # pyright: ignore[reportReturnType]


def fed(plan: Drawn, rows: int) -> tuple[Tensor, ...]:
    """What the network of a plan is called with."""
    x = images(rows, plan.seed, SHAPE)
    if plan.beside == "nothing":
        return (x,)
    return (x, images(rows, plan.seed + 1, (4,)) if plan.beside == "vector" else torch.arange(rows) % 5)
