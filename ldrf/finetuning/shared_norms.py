"""BatchNorms that follow the whole batch when each of several processes has only a part of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from ldrf.runtime.processes import sum_number, summed

BatchNorm = nn.modules.batchnorm._BatchNorm


@contextmanager
def shared_norms(model: nn.Module, shared: bool) -> Iterator[None]:
    """With ``shared``, the model's BatchNorms normalise by the rows of all processes; as before afterwards.

    (torch's own SyncBatchNorm needs GPUs.)
    """
    norms = [module for module in model.modules() if shared and isinstance(module, BatchNorm)]
    for norm in norms:
        norm.forward = partial(shared_norm, norm)  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield
    finally:
        for norm in norms:
            del norm.forward


def shared_norm(norm: BatchNorm, x: Tensor) -> Tensor:
    """What the norm makes of x [rows, c, ...] when the rows of all processes are one batch."""
    if not norm.training and norm.running_mean is not None:
        return type(norm).forward(norm, x)
    dims, shape = [0, *range(2, x.ndim)], (1, -1, *(1,) * (x.ndim - 2))
    values = sum_number(x.numel() / x.shape[1])
    mean = summed(x.sum(dims)) / values
    centred = x - mean.view(shape)
    variance = summed(centred.square().sum(dims)) / values
    if norm.training:
        _follow(norm, mean.detach(), variance.detach() * values / max(values - 1, 1))
    y = centred * (variance + norm.eps).rsqrt().view(shape)
    return y * norm.weight.view(shape) + norm.bias.view(shape) if norm.affine else y


@torch.no_grad()
def _follow(norm: BatchNorm, mean: Tensor, variance: Tensor) -> None:
    """Move the running statistics as torch does."""
    if norm.running_mean is None or norm.running_var is None or norm.num_batches_tracked is None:
        return
    norm.num_batches_tracked += 1
    pace = 1 / float(norm.num_batches_tracked) if norm.momentum is None else norm.momentum
    norm.running_mean.lerp_(mean, pace)
    norm.running_var.lerp_(variance, pace)
