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
from ldrf.reconstruction.neuron_mask import Capped, Mask, MaskProblem, MaskSettings, learn_mask
from ldrf.runtime.device import Device, exact, find_device, single

HELD_OUT = 0.2
CHUNKS = 8  # parts of the fitting rows, one per step


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
class _Data:
    """Q [n, z] and the mean [n] of y; inputs with their embedded targets Q^T y, to fit in chunks, and held out."""

    embedding: Tensor
    mean: Tensor
    fit: tuple[tuple[Tensor, Tensor], ...]
    held_out: tuple[Tensor, Tensor]
    spread: float  # of y on held-out rows
    embedding_error: float  # ||y - Q Q^T y||^2 there, relative to the spread


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
    device: Device | None = None,
) -> SingleLayer:
    """Keep ``width`` of the n neurons of relu(x W^T + b), x [rows, m], W [n, m] (Eqn. 2); Q has ``rank`` components.

    It computes on ``device``, by default where the weight is.
    """
    _check(x, weight, bias, width, rank)
    there = weight.device if device is None else find_device(device)
    x, weight = (tensor.detach().to(there, torch.float32) for tensor in (x, weight))
    bias = weight.new_zeros(len(weight)) if bias is None else bias.detach().to(there, torch.float32)
    data = _embedded(x, weight, bias, len(weight) if rank is None else rank, seed)
    mask = _learned_mask(data, weight, bias, MaskSettings(width, lambda_1, lambda_2, steps, seed=seed))
    kept = mask.kept(width)
    reader = torch.cat([data.embedding[kept], -(data.mean @ data.embedding)[None]])
    candidates = _solved(data, _Candidate(weight[kept], bias[kept], reader), steps, rate, damping, seed)
    errors = {way: _held_out_error(data, candidate) for way, candidate in candidates.items()}
    way = min(errors, key=lambda name: errors[name] if math.isfinite(errors[name]) else math.inf)
    best = candidates[way]
    return SingleLayer(
        weight=best.weight,
        bias=best.bias,
        projection=best.reader[:-1],
        offset=best.reader[-1],
        embedding=data.embedding,
        mean=data.mean,
        mask=mask.values,
        kept=kept,
        embedding_error=data.embedding_error,
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


def _embedded(x: Tensor, weight: Tensor, bias: Tensor, rank: int, seed: int) -> _Data:
    """Rows of x to fit and to judge, with what the layer makes of them in the ``rank`` principal components of y."""
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    judged = max(1, round(HELD_OUT * len(x)))
    held_out, fitting = x[order[:judged]], x[order[judged:]]
    y = _relu_layer(held_out, weight, bias)
    mean, embedding = principal_components(_relu_layer(fitting, weight, bias), rank)
    spread = max(float((y - y.mean(0)).square().sum()), 1e-30)

    def target(part: Tensor) -> Tensor:
        return (_relu_layer(part, weight, bias) - mean) @ embedding

    fit = tuple((part, target(part)) for part in fitting.chunk(min(CHUNKS, len(fitting))))
    lost = y - mean - target(held_out) @ embedding.T
    embedding_error = float(lost.square().sum()) / spread
    return _Data(embedding, mean, fit, (held_out, target(held_out)), spread, embedding_error)


def _relu_layer(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.relu(x @ weight.T + bias)


def principal_components(y: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """The mean [n] of y [rows, n] and its ``rank`` leading principal directions, Q [n, z] with Q^T Q = 1."""
    mean = exact(y).mean(0)
    centred = exact(y) - mean
    vectors = torch.linalg.eigh(centred.T @ centred).eigenvectors.flip(1)[:, :rank]
    return single(mean, y), single(vectors, y).contiguous()


def _learned_mask(data: _Data, weight: Tensor, bias: Tensor, settings: MaskSettings) -> Mask:
    """The mask m [n] of Eqn. 2, learned with W' and Q' moving along."""
    n = len(weight)
    layer = Capped(torch.cat([weight, bias[:, None]], 1))

    def error(chunk: int, readers: list[Tensor]) -> Tensor:
        x, target = data.fit[chunk]
        moved = layer()
        gap = _relu_layer(x, moved[:, :-1], moved[:, -1]) @ readers[0] - target
        # the offset of Q' has a closed form for any m, so only the gap about its mean counts
        return (gap - gap.mean(0)).square().sum() / (target - target.mean(0)).square().sum().clamp_min(1e-30)

    problem = MaskProblem(error, [data.embedding], [torch.arange(n)], n, range(len(data.fit)), [layer.delta])
    return learn_mask(problem, settings)


def _solved(data: _Data, cut: _Candidate, steps: int, rate: float, damping: float, seed: int) -> dict[str, _Candidate]:
    """W' and Q' in every way tried, by name, the plain cut first."""
    candidates = {"cut": cut, "closed form": _refitted(data, cut, damping)}
    if steps:
        candidates["descent"] = _descended(data, candidates["closed form"], steps, rate, seed)
        candidates["descent, closed form"] = _refitted(data, candidates["descent"], damping)
    return candidates


def _refitted(data: _Data, start: _Candidate, damping: float) -> _Candidate:
    """Q' and its offset by least squares on the fitting rows."""
    sums = RowSums(len(start.weight), start.reader.shape[1], start.weight.device)
    for x, target in data.fit:
        sums.add(_relu_layer(x, start.weight, start.bias), target)
    solved = least_squares(sums.moments(), exact(start.reader), damping)
    return _Candidate(start.weight, start.bias, single(solved, start.weight))


def _descended(data: _Data, start: _Candidate, steps: int, rate: float, seed: int) -> _Candidate:
    """Adam on W', b' and Q' together."""
    moving = [Scaled(t) for t in (start.weight, start.bias, start.reader)]

    def losses(chunk: int) -> list[Tensor]:
        x, target = data.fit[chunk]
        weight, bias, reader = (value() for value in moving)
        gap = _relu_layer(x, weight, bias) @ reader[:-1] + reader[-1] - target
        return [gap.square().sum() / target.square().sum().clamp_min(1e-30)]

    descend(moving, losses, range(len(data.fit)), steps, rate, seed)
    return _Candidate(*(value().detach() for value in moving))


@torch.no_grad()
def _held_out_error(data: _Data, candidate: _Candidate) -> float:
    """||Q^T y - Q'^T y'||^2 on held-out rows, relative to the spread of y."""
    x, target = data.held_out
    made = _relu_layer(x, candidate.weight, candidate.bias) @ candidate.reader[:-1] + candidate.reader[-1]
    return float((made - target).square().sum()) / data.spread
