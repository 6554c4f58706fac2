"""Prune one layer y = relu(W^T x) on its own (Eqn. 1-2, Sec. "Pruning for Single Layer").

Q comes from principal components of y; neurons are cut by the mask m; W' and Q' are solved so that the embedding
Q^T y comes out as before: closed form for Q', descent on both, closed form again, the best on held-out rows.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ldrf.algebra.descent import Scaled, descend
from ldrf.algebra.moments import RowSums, least_squares
from ldrf.errors import LdrfError
from ldrf.reconstruction.l1_mask import Capped, learn_mask

HELD_OUT = 0.2
CHUNKS = 8  # parts of the fitting rows, one a step


@dataclass(frozen=True)
class SingleLayer:
    """W' [n', m], b' [n'], Q' [n', z] with its offset [z]; Q [n, z] and the mean [n] of y; m [n] and what it kept.

    Errors are squared, on held-out rows, and relative to the variance of y, so that those of both terms add up.
    """

    weight: Tensor
    bias: Tensor
    projection: Tensor
    offset: Tensor
    embedding: Tensor
    mean: Tensor
    mask: Tensor
    kept: Tensor
    embedding_error: float  # first term: ||y - Q Q^T y||^2
    cut_error: float  # second term ||Q^T y - Q'^T y'||^2 before W' and Q' are solved
    error: float  # and after
    way: str  # which of the candidates won
    candidates: dict[str, float]

    def __call__(self, x: Tensor) -> Tensor:
        """All n neurons [rows, n] from x [rows, m], through the n' that stayed: Q (Q'^T y') + mean."""
        embedded = _relu_layer(x, self.weight, self.bias) @ self.projection + self.offset
        return embedded @ self.embedding.T + self.mean

    @property
    def total_error(self) -> float:
        """||y - Q Q'^T y'||^2: both terms, which are orthogonal."""
        return self.embedding_error + self.error


@dataclass(frozen=True)
class _Rows:
    """Inputs and embedded targets: fitting rows in chunks, held-out rows, and the spread of y on the latter."""

    fit: tuple[tuple[Tensor, Tensor], ...]
    held_out: tuple[Tensor, Tensor]
    spread: float


@dataclass(frozen=True)
class _Candidate:
    """W' [n', m], b' [n'] and a matrix [n' + 1, z]: Q' and, as its last row, its offset."""

    weight: Tensor
    bias: Tensor
    reader: Tensor


def prune_layer(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    width: int,
    *,
    rank: int | None = None,
    lambda_1: float = 1.0,
    lambda_2: float | None = None,
    steps: int = 200,
    rate: float = 0.02,
    damping: float = 1e-4,
    seed: int = 0,
) -> SingleLayer:
    """Keep ``width`` of the n neurons of relu(x W^T + b), x [rows, m], W [n, m] (Eqn. 2); Q has ``rank`` components."""
    n = len(weight)
    _check(x, weight, bias, width, rank)
    x, weight = x.detach().float(), weight.detach().float()
    bias = weight.new_zeros(n) if bias is None else bias.detach().float()
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    judged = max(1, round(HELD_OUT * len(x)))
    held, fitting = x[order[:judged]], x[order[judged:]]
    y = _relu_layer(held, weight, bias)
    mean, embedding = principal_components(_relu_layer(fitting, weight, bias), n if rank is None else rank)
    embed = lambda part: (_relu_layer(part, weight, bias) - mean) @ embedding  # noqa: E731
    spread = max(float((y - y.mean(0)).square().sum()), 1e-30)
    pieces = fitting.chunk(min(CHUNKS, len(fitting)))
    rows = _Rows(tuple((part, embed(part)) for part in pieces), (held, embed(held)), spread)

    mask, kept = _masked(rows, weight, bias, embedding, width, lambda_1, lambda_2, steps, seed)
    reader = torch.cat([embedding[kept], -(mean @ embedding)[None]])
    found = _solved(rows, _Candidate(weight[kept], bias[kept], reader), steps, rate, damping, seed)
    errors = {way: _judged(rows, candidate) for way, candidate in found.items()}
    way = min(errors, key=lambda name: errors[name] if math.isfinite(errors[name]) else math.inf)
    lost = y - mean - rows.held_out[1] @ embedding.T
    best = found[way]
    return SingleLayer(
        weight=best.weight,
        bias=best.bias,
        projection=best.reader[:-1],
        offset=best.reader[-1],
        embedding=embedding,
        mean=mean,
        mask=mask,
        kept=kept,
        embedding_error=float(lost.square().sum()) / spread,
        cut_error=errors["cut"],
        error=errors[way],
        way=way,
        candidates=errors,
    )


def _check(x: Tensor, weight: Tensor, bias: Tensor | None, width: int, rank: int | None) -> None:
    if (
        weight.ndim != 2
        or x.ndim != 2
        or x.shape[1] != weight.shape[1]
        or (bias is not None and len(bias) != len(weight))
    ):
        shapes = [tuple(t.shape) for t in (x, weight, bias) if t is not None]
        raise LdrfError(f"A layer needs x [rows, m], weight [n, m] and bias [n]. Got {shapes} instead.")
    if len(x) < 2:
        raise LdrfError(f"At least 2 rows are needed, one to fit and one to judge. Got {len(x)} instead.")
    for name, value in (("width", width), ("rank", rank)):
        if value is not None and not 1 <= value <= len(weight):
            raise LdrfError(f"The '{name}' must be a whole number from 1 to {len(weight)}. Got {value!r} instead.")
    if not all(bool(torch.isfinite(t).all()) for t in (x, weight, bias) if t is not None):
        raise LdrfError("The inputs, weight and bias of a layer must be finite. Got NaN or infinite values instead.")


def _relu_layer(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.relu(x @ weight.T + bias)


def principal_components(y: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """The mean [n] of y [rows, n] and its ``rank`` leading principal directions, Q [n, z] with Q^T Q = 1."""
    mean = y.double().mean(0)
    centred = y.double() - mean
    vectors = torch.linalg.eigh(centred.T @ centred).eigenvectors.flip(1)[:, :rank]
    return mean.float(), vectors.float().contiguous()


def _masked(
    rows: _Rows,
    weight: Tensor,
    bias: Tensor,
    embedding: Tensor,
    width: int,
    lambda_1: float,
    lambda_2: float | None,
    steps: int,
    seed: int,
) -> tuple[Tensor, Tensor]:
    """m [n] of Eqn. 2 with W' and Q' moving along, and the neurons it keeps."""
    n = len(weight)
    layer = Capped(torch.cat([weight, bias[:, None]], 1))

    def error(chunk: int, readers: list[Tensor]) -> Tensor:
        x, target = rows.fit[chunk]
        moved = layer()
        gap = _relu_layer(x, moved[:, :-1], moved[:, -1]) @ readers[0] - target
        # the offset of Q' has a closed form for any m, so only the gap about its mean counts
        return (gap - gap.mean(0)).square().sum() / (target - target.mean(0)).square().sum().clamp_min(1e-30)

    learned = learn_mask(
        error,
        [embedding],
        [torch.arange(n)],
        n,
        range(len(rows.fit)),
        [layer.delta],
        width=width,
        lambda_1=lambda_1,
        lambda_2=lambda_2,
        steps=steps,
        seed=seed,
    )
    return learned.values, learned.kept(width)


def _solved(rows: _Rows, cut: _Candidate, steps: int, rate: float, damping: float, seed: int) -> dict[str, _Candidate]:
    """W' and Q' in every way tried, by name, the plain cut first."""
    found = {"cut": cut, "closed form": _refitted(rows, cut, damping)}
    if steps:
        found["descent"] = _descended(rows, found["closed form"], steps, rate, seed)
        found["descent, closed form"] = _refitted(rows, found["descent"], damping)
    return found


def _refitted(rows: _Rows, start: _Candidate, damping: float) -> _Candidate:
    """Q' and its offset by least squares on the fitting rows."""
    sums = RowSums(len(start.weight), start.reader.shape[1])
    for x, target in rows.fit:
        sums.add(_relu_layer(x, start.weight, start.bias), target)
    return _Candidate(start.weight, start.bias, least_squares(sums.moments(), start.reader.double(), damping).float())


def _descended(rows: _Rows, start: _Candidate, steps: int, rate: float, seed: int) -> _Candidate:
    """Adam on W', b' and Q' together."""
    moving = [Scaled(t) for t in (start.weight, start.bias, start.reader)]

    def losses(chunk: int) -> list[Tensor]:
        x, target = rows.fit[chunk]
        weight, bias, reader = (value() for value in moving)
        gap = _relu_layer(x, weight, bias) @ reader[:-1] + reader[-1] - target
        return [gap.square().sum() / target.square().sum().clamp_min(1e-30)]

    descend(moving, losses, range(len(rows.fit)), steps, rate, seed)
    return _Candidate(*(value().detach() for value in moving))


@torch.no_grad()
def _judged(rows: _Rows, candidate: _Candidate) -> float:
    """||Q^T y - Q'^T y'||^2 on held-out rows, relative to the spread of y."""
    x, target = rows.held_out
    made = _relu_layer(x, candidate.weight, candidate.bias) @ candidate.reader[:-1] + candidate.reader[-1]
    return float((made - target).square().sum()) / rows.spread
