"""The mask m of Eqn. 2-4: which neurons matter, learned together with R' and Q' under an l1 penalty.

Minimises  lambda_1 ||T - Q'^T (m * gamma(R'^T x))||^2 / ||T||^2 + lambda_2 ||m||_1 / n  over m >= 0, R' and Q'. Both
terms are shares, so the same lambdas suit narrow and wide layers. As m could shrink for nothing while Q' or R' grow by
as much, no neuron's rows may outgrow their norm at the start. With that, m_i is the norm of what its consumers read of
neuron i: for a given R' the problem is a group lasso in m * Q', convex, and its proximal step makes exact zeros.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ldrf.config import PruneConfig
from ldrf.errors import LdrfError
from ldrf.reconstruction.metric import measured
from ldrf.reconstruction.problem import Problem, goal_power, neurons, read, source, target
from ldrf.runtime.processes import no_loss, sum_over, summed_gradients
from ldrf.tracing.patches import output_rows
from ldrf.units.unit import Consumer

# (chunk, m * Q' of each consumer [d, o]) -> squared error relative to the target's power; quadratic in the matrices
MaskedError = Callable[[int, list[Tensor]], Tensor]

STEPS = 100
# Of R', which moves slowly: a choice made while it moved at 0.02 ended at 0.135 in a ResNet-20 unit (layer3.1.conv1, 32
# of 64), at 0.125 with 1e-3 or none; in another (layer2.1.conv1, 16 of 32) at 0.098, 0.100 and 0.096.
RATE = 1e-3
MOMENTUM = 0.9
FIRST = 0.2  # where lambda_2 starts when it is found rather than given
GROWTH = 10  # how far it may rise: slowly, so that R' and Q' take over what a fading neuron did
SETTLE = 0.7  # in this share of the steps


@dataclass(frozen=True)
class Mask:
    """A learned mask: m [n], for how many steps each neuron was alive [n], and the last lambda_2."""

    values: Tensor
    alive: Tensor
    lambda_2: float

    def kept(self, width: int) -> Tensor:
        """Indices of the ``width`` neurons with the largest m, ascending; of those at zero, what died last."""
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
        owner = torch.cat([o.repeat_interleave(m.shape[1]) for m, o in zip(matrices, owners, strict=True)])
        values = torch.cat([m.detach().float().flatten() for m in matrices])
        unscaled = cls(tuple(m.shape for m in matrices), owner, torch.ones(size))
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


def learn_mask(
    error: MaskedError,
    matrices: Sequence[Tensor],
    owners: Sequence[Tensor],
    size: int,
    chunks: Sequence[int],
    moving: Sequence[Tensor] = (),
    *,
    width: int,
    lambda_1: float = 1.0,
    lambda_2: float | None = None,
    steps: int = STEPS,
    rate: float = RATE,
    seed: int = 0,
) -> Mask:
    """Learn m [n] from ones and Q' from ``matrices``, the leaves ``moving`` behind R' along with them (Eqn. 2-4).

    With ``lambda_2`` None it rises while more than ``width`` neurons are left and falls otherwise: the paper's own
    objection to Eqn. 4 is that nobody knows lambda_2 for a wanted width.
    """
    _check(size, width, lambda_1, lambda_2)
    readers, vector = Readers.of(matrices, owners, size)
    objective = lambda chunk, at: lambda_1 * error(chunk, readers.matrices(at))  # noqa: E731
    stride = 1 / max(_curvature(objective, chunks[0], vector), 1e-12)
    previous, alive = vector, torch.zeros(size)
    penalty = FIRST * lambda_1 if lambda_2 is None else lambda_2
    turn = GROWTH ** (1 / max(SETTLE * steps, 1)) if lambda_2 is None else 1.0
    optimiser = torch.optim.Adam(moving, lr=rate, betas=(0.9, 0.99)) if moving else None
    generator = torch.Generator().manual_seed(seed)
    order: list[int] = []
    for _ in range(steps):
        order = order or [chunks[i] for i in torch.randperm(len(chunks), generator=generator).tolist()]
        point = (vector + MOMENTUM * (vector - previous)).requires_grad_(True)
        slope, *slopes = torch.autograd.grad(objective(order.pop(), point), [point, *moving])
        previous, vector = vector, readers.shrunk((point - stride * slope).detach(), stride * penalty / size)
        if optimiser:
            for leaf, gradient in zip(moving, slopes, strict=True):
                leaf.grad = gradient
            optimiser.step()
        left = readers.norms(vector) > 0
        alive += left
        penalty *= turn if int(left.sum()) > width else 1 / turn
    return Mask(readers.norms(vector), alive, penalty)


def _check(size: int, width: int, lambda_1: float, lambda_2: float | None) -> None:
    if not 1 <= width <= size:
        raise LdrfError(f"The width must be a whole number from 1 to {size}. Got {width!r} instead.")
    if not lambda_1 > 0:
        raise LdrfError(f"The 'lambda_1' must be above 0. Got {lambda_1!r} instead.")
    if lambda_2 is not None and not lambda_2 >= 0:
        raise LdrfError(f"The 'lambda_2' must be at least 0, or None to be found. Got {lambda_2!r} instead.")


def _curvature(objective: Callable[[int, Tensor], Tensor], chunk: int, start: Tensor, rounds: int = 8) -> float:
    """The largest eigenvalue of the objective's Hessian, by power iteration on differences of its gradient."""

    def slope(at: Tensor) -> Tensor:
        at = at.detach().requires_grad_(True)
        return torch.autograd.grad(objective(chunk, at), at)[0]

    base, direction, largest = slope(torch.zeros_like(start)), start, 0.0
    for _ in range(rounds):
        image = slope(direction / direction.norm().clamp_min(1e-12)) - base
        largest = float(image.norm())
        if largest < 1e-12:
            break
        direction = image
    return 1.3 * largest  # chunks differ, and the iteration comes from below


def mask_unit(
    problem: Problem,
    width: int,
    config: PruneConfig,
    seed: int,
    *,
    lambda_1: float = 1.0,
    lambda_2: float | None = None,
) -> Tensor:
    """Indices of the ``width`` neurons with the largest m in Eqn. 4; ``problem.kept`` must name all neurons.

    m acts on the consumers' inputs, behind whatever the path does. Their biases have a closed form for any m and Q', so
    the error is that about the mean of each output.
    """
    unit, walk, n = problem.unit, problem.walk, problem.unit.width
    if width >= n:
        return torch.arange(n)
    weight, bias = walk.slim.affine(unit.producer.node)
    rows = Capped(torch.cat([weight.flatten(1), bias[:, None]], 1))
    matrices = [walk.slim.layers[c.layer.node][0].flatten(1).T for c in unit.consumers]

    def error(chunk: int, readers: list[Tensor]) -> Tensor:
        moved, *readers = summed_gradients(rows(), *readers)
        lost = no_loss([moved, *readers])
        gaps = _gaps(problem, chunk, moved[:, :-1].reshape(weight.shape), moved[:, -1], readers)
        for gap, metric in zip(gaps, problem.metrics, strict=True):
            # The mean is over all processes. It need not be differentiated: about it the gaps sum to zero.
            whole = sum_over(torch.cat([gap.detach().sum(0), gap.new_full((1,), len(gap))]).double())
            lost = lost + measured(gap - (whole[:-1] / whole[-1]).float(), metric, -1).square().sum()
        return lost / (goal_power(problem, chunk) + 1e-30)

    learned = learn_mask(
        error,
        matrices,
        [_owner(c) for c in unit.consumers],
        n,
        walk.calibration.fitting,
        [rows.delta],
        width=width,
        lambda_1=lambda_1,
        lambda_2=lambda_2,
        steps=min(config.steps, STEPS),
        seed=seed,
    )
    return learned.kept(width)


def _gaps(problem: Problem, chunk: int, weight: Tensor, bias: Tensor, readers: Sequence[Tensor]) -> list[Tensor]:
    """What each consumer's outputs lack to their target [rows, o], no rows where this process has none."""
    unit = problem.unit
    if not problem.walk.calibration.own([chunk]):
        return [torch.zeros(0, consumer.layer.outputs) for consumer in unit.consumers]
    values, found = neurons(problem, chunk, weight, bias), []
    for i, (consumer, reader) in enumerate(zip(unit.consumers, readers, strict=True)):
        x = values[source(consumer.layer, problem.trace)]
        gap = read(consumer, x, reader, x.new_zeros(consumer.layer.outputs)) - target(problem, chunk, i)
        found.append(output_rows(consumer.layer, gap, None))
    return found


def _owner(consumer: Consumer) -> Tensor:
    """The neuron behind each column of the consumer's flattened weight."""
    return torch.as_tensor(consumer.channels).repeat_interleave(math.prod(consumer.layer.kernel))
