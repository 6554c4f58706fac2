"""Split a layer into an embedding Q and a transformation R (Eqn. 4-5 and the supplement, "SVD").

W_l = Q_{l-1} R_l: a k x k convolution becomes a k x k one to z channels followed by a 1 x 1 one.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ldrf.algebra.moments import Moments
from ldrf.runtime.device import exact


@dataclass(frozen=True)
class Decomposition:
    """Q [d, z] and R [z, n] with biases, so that x W + b = (x Q + q) R + r; ``spectrum`` holds all singular values."""

    embedding: Tensor
    embedding_bias: Tensor
    transformation: Tensor
    transformation_bias: Tensor
    spectrum: Tensor

    @property
    def rank(self) -> int:
        """z, the number of components."""
        return self.embedding.shape[1]

    def recomposed(self) -> tuple[Tensor, Tensor]:
        """W = Q R and its bias (Alg. 1, stage 3)."""
        bias = self.embedding_bias @ self.transformation + self.transformation_bias
        return self.embedding @ self.transformation, bias


def matrix_of(weight: Tensor) -> Tensor:
    """A conv weight [n, c, k, k] or linear weight [n, d] as the paper's W: one column per neuron [d, n]."""
    return weight.flatten(1).T


def rank_at(spectrum: Tensor, energy: float) -> int:
    """The smallest rank whose singular values sum to at least ``energy`` of all of them (at least 1)."""
    total = exact(spectrum).cumsum(0)
    if float(total[-1]) <= 0:
        return 1
    reached = total >= energy * total[-1] * (1 - 1e-12)
    return int(reached.nonzero()[0]) + 1


def decompose(weight: Tensor, bias: Tensor | None, rank: int | None = None) -> Decomposition:
    """Cross-channel SVD of the weight alone: W [d, n] = (U S) V^T cut to ``rank``."""
    matrix = exact(matrix_of(weight))
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    z = len(values) if rank is None else rank
    return _made(left[:, :z] * values[:z], right[:z], bias, values)


def decompose_with_data(weight: Tensor, bias: Tensor | None, inputs: Moments, rank: int | None = None) -> Decomposition:
    """The decomposition that minimises Eqn. 5 on activations: principal components of the layer's own output.

    ``inputs`` holds the Gram matrix of the layer's input rows; the best rank-z Q R for x W is W V_z V_z^T
    with V the eigenvectors of the output's covariance.
    """
    matrix = exact(matrix_of(weight))
    d = len(matrix)
    mean = inputs.gram[:d, d] / inputs.rows
    covariance = inputs.gram[:d, :d] / inputs.rows - torch.outer(mean, mean)
    values, vectors = torch.linalg.eigh(matrix.T @ covariance @ matrix)
    spectrum = values.flip(0).clamp_min(0).sqrt()
    vectors = vectors.flip(1)
    z = min(len(spectrum), d) if rank is None else rank
    embedding, basis = matrix @ vectors[:, :z], vectors[:, :z].T
    lost = mean @ matrix - mean @ embedding @ basis  # the mean is kept whole by the bias
    made = _made(embedding, basis, bias, spectrum[: min(d, len(spectrum))])
    return Decomposition(
        made.embedding, made.embedding_bias, made.transformation, made.transformation_bias + lost, made.spectrum
    )


def _made(embedding: Tensor, transformation: Tensor, bias: Tensor | None, spectrum: Tensor) -> Decomposition:
    """A decomposition whose embedding adds no constant."""
    zeros = embedding.new_zeros(embedding.shape[1])
    constant = exact(bias) if bias is not None else transformation.new_zeros(transformation.shape[1])
    return Decomposition(embedding, zeros, transformation, constant, spectrum)


def normalise_embedding(parts: Decomposition, mean: Tensor, variance: Tensor) -> Decomposition:
    """The same layer with its embedding at mean 0 and variance 1 (suppl.: Q/sqrt(var), -m/sqrt(var); sqrt(var) R, mR).

    Components that never vary keep their scale.
    """
    deviation = torch.where(variance > 1e-12, variance.clamp_min(1e-12).sqrt(), torch.ones_like(variance))
    return Decomposition(
        embedding=parts.embedding / deviation,
        embedding_bias=(parts.embedding_bias - mean) / deviation,
        transformation=deviation[:, None] * parts.transformation,
        transformation_bias=parts.transformation_bias + mean @ parts.transformation,
        spectrum=parts.spectrum,
    )
