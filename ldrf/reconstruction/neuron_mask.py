"""The mask m of Eqn. 2-4: which neurons matter, learned together with R' and Q' under an l1 penalty.

Minimises  lambda_1 ||T - Q'^T (m * gamma(R'^T x))||^2 / ||T||^2 + lambda_2 ||m||_1 / n  over m >= 0, R' and Q'. Both
terms are shares, so the same lambdas suit narrow and wide layers. As m could shrink for nothing while Q' or R' grow by
as much, the weights of a neuron may not outgrow their norm at the start. With that, m_i is the norm of the consumers'
weights on neuron i: for a given R' the problem is a group lasso in m * Q', convex, and its proximal step makes exact
zeros.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ldrf.algebra.descent import shuffled
from ldrf.errors import LdrfError

# (chunk, m * Q' of each consumer [d, o]) -> squared error relative to the target's power; quadratic in the matrices
MaskedError = Callable[[int, list[Tensor]], Tensor]

STEPS = 100
# Of R', which moves slowly: a choice made while it moved at 0.02 ended at 0.135 in a ResNet-20 unit (layer3.1.conv1, 32
# of 64), at 0.125 with 1e-3 or none; in another (layer2.1.conv1, 16 of 32) at 0.098, 0.100 and 0.096.
RATE = 1e-3
MOMENTUM = 0.9
FIRST = 0.2  # where lambda_2 starts when it is found rather than given, as a share of lambda_1
GROWTH = 10  # how far it may rise: slowly, so that R' and Q' take over what a fading neuron did
SETTLE = 0.7  # share of the steps in which it may rise as far as that


@dataclass(frozen=True)
class Mask:
    """A learned mask: m [n], for how many steps each neuron was alive [n], and the last lambda_2."""

    values: Tensor
    alive: Tensor
    lambda_2: float

    def kept(self, width: int) -> Tensor:
        """Indices of the ``width`` neurons with the largest m, ascending; of those at zero, the last to become zero."""
        order = self.alive.argsort(descending=True, stable=True)
        order = order[self.values[order].argsort(descending=True, stable=True)]
        return order[:width].sort().values


@dataclass(frozen=True)
class Readers:
    """m * Q' of all consumers as one vector, in units of each neuron's norm at the start: m are its norms by neuron."""

    shapes: tuple[torch.Size, ...]
    owner: Tensor  # neuron behind each entry
    limits: Tensor  # norm of each neuron's entries at the start [n]

    @classmethod
    def of(cls, matrices: Sequence[Tensor], owners: Sequence[Tensor], size: int) -> tuple["Readers", Tensor]:
        """From Q [d, o] of each consumer and the neuron behind each of its rows [d]; and the vector to start from."""
        values = torch.cat([m.detach().float().flatten() for m in matrices])
        owner = torch.cat([o.repeat_interleave(m.shape[1]) for m, o in zip(matrices, owners, strict=True)])
        owner = owner.to(values.device)
        unscaled = cls(tuple(m.shape for m in matrices), owner, values.new_ones(size))
        limits = unscaled.norms(values)
        return cls(unscaled.shapes, owner, limits), values / limits.clamp_min(1e-12)[owner]

    def norms(self, vector: Tensor) -> Tensor:
        """m [n]."""
        return torch.zeros_like(self.limits).index_add(0, self.owner, vector.square()).sqrt()

    def matrices(self, vector: Tensor) -> list[Tensor]:
        """m * Q' of each consumer [d, o]."""
        pieces = (vector * self.limits[self.owner]).split([shape.numel() for shape in self.shapes])
        return [piece.view(shape) for piece, shape in zip(pieces, self.shapes, strict=True)]

    def shrunk(self, vector: Tensor, amount: float) -> Tensor:
        """The proximal step of ||m||_1: every m_i nearer to zero by ``amount``, or at zero."""
        return vector * (1 - amount / self.norms(vector).clamp_min(1e-12)).clamp_min(0)[self.owner]


class Capped:
    """R' [n, d] moving in units of its own size, no neuron's row beyond its norm at the start."""

    def __init__(self, start: Tensor) -> None:
        self.start = start.detach().clone()
        self.size = float(start.square().mean().sqrt()) + 1e-8
        self.delta = torch.zeros_like(self.start, requires_grad=True)

    def __call__(self) -> Tensor:
        moved = self.start + self.size * self.delta
        norms, limits = (t.square().sum(1, keepdim=True).clamp_min(1e-24).sqrt() for t in (moved, self.start))
        return moved * (limits / norms).clamp_max(1)


@dataclass(frozen=True)
class MaskProblem:
    """What a mask over ``size`` neurons is learned on (Eqn. 2-4).

    ``matrices`` are Q [d, o] of each consumer and ``owners`` the neuron behind each of its rows [d]. The leaves
    ``moving`` are what R' in ``error`` depends on.
    """

    error: MaskedError
    matrices: Sequence[Tensor]
    owners: Sequence[Tensor]
    size: int
    chunks: Sequence[int]
    moving: Sequence[Tensor] = ()


@dataclass(frozen=True)
class MaskSettings:
    """The width to reach, the weights of both terms of Eqn. 4, and how to descend.

    With ``lambda_2`` None it rises while more than ``width`` neurons are left and falls otherwise: the paper's own
    objection to Eqn. 4 is that nobody knows lambda_2 for a wanted width.
    """

    width: int
    lambda_1: float = 1.0
    lambda_2: float | None = None
    steps: int = STEPS
    rate: float = RATE
    seed: int = 0

    @property
    def first_penalty(self) -> float:
        """lambda_2 in the first step."""
        return FIRST * self.lambda_1 if self.lambda_2 is None else self.lambda_2

    @property
    def growth(self) -> float:
        """The factor by which lambda_2 rises or falls per step."""
        return GROWTH ** (1 / max(SETTLE * self.steps, 1)) if self.lambda_2 is None else 1.0


def learn_mask(problem: MaskProblem, settings: MaskSettings) -> Mask:
    """Learn m [n] from ones, Q' from ``problem.matrices`` and R' along with them (Eqn. 2-4)."""
    _check(problem.size, settings)
    readers, vector = Readers.of(problem.matrices, problem.owners, problem.size)

    def objective(chunk: int, at: Tensor) -> Tensor:
        return settings.lambda_1 * problem.error(chunk, readers.matrices(at))

    moving, size = problem.moving, problem.size
    stride = 1 / max(_curvature(objective, problem.chunks[0], vector), 1e-12)
    previous, alive, penalty = vector, vector.new_zeros(size), settings.first_penalty
    optimiser = torch.optim.Adam(moving, lr=settings.rate, betas=(0.9, 0.99)) if moving else None
    for _, chunk in zip(range(settings.steps), shuffled(problem.chunks, settings.seed), strict=False):
        point = (vector + MOMENTUM * (vector - previous)).requires_grad_(True)
        gradient, *gradients = torch.autograd.grad(objective(chunk, point), [point, *moving])
        previous, vector = vector, readers.shrunk((point - stride * gradient).detach(), stride * penalty / size)
        if optimiser:
            for leaf, own in zip(moving, gradients, strict=True):
                leaf.grad = own
            optimiser.step()
        left = readers.norms(vector) > 0
        alive += left
        penalty *= settings.growth if int(left.sum()) > settings.width else 1 / settings.growth
    return Mask(readers.norms(vector).cpu(), alive.cpu(), penalty)


def _check(size: int, settings: MaskSettings) -> None:
    if not 1 <= settings.width <= size:
        raise LdrfError(f"The width must be a whole number from 1 to {size}. Got {settings.width!r} instead.")
    if not settings.lambda_1 > 0:
        raise LdrfError(f"The 'lambda_1' must be above 0. Got {settings.lambda_1!r} instead.")
    if settings.lambda_2 is not None and not settings.lambda_2 >= 0:
        raise LdrfError(f"The 'lambda_2' must be at least 0, or None to be found. Got {settings.lambda_2!r} instead.")


def _curvature(objective: Callable[[int, Tensor], Tensor], chunk: int, start: Tensor, rounds: int = 8) -> float:
    """The largest eigenvalue of the objective's Hessian, by power iteration on differences of its gradient."""

    def gradient(at: Tensor) -> Tensor:
        at = at.detach().requires_grad_(True)
        return torch.autograd.grad(objective(chunk, at), at)[0]

    base, direction, largest = gradient(torch.zeros_like(start)), start, 0.0
    for _ in range(rounds):
        image = gradient(direction / direction.norm().clamp_min(1e-12)) - base
        largest = float(image.norm())
        if largest < 1e-12:
            break
        direction = image
    return 1.3 * largest  # chunks differ, and the iteration comes from below
