"""How often a network answers as the dense one does, without any labels."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from ldrf.inputs import Inputs


def met(mine: Tensor, dense: Tensor) -> Tensor:
    """Images with the dense network's first guess, and their number; without scores [batch, classes], the part of the
    outputs' variance that is met, and that variance."""
    if dense.ndim == 2 and dense.shape[1] > 1:
        return torch.tensor([float((mine.argmax(1) == dense.argmax(1)).sum()), len(dense)], dtype=torch.float64)
    spread = float((dense - dense.mean(0)).square().sum())
    return torch.tensor([spread - float((dense - mine).square().sum()), spread], dtype=torch.float64)


def agreement(run: Callable[[Inputs], Tensor], images: Iterable[Inputs], wanted: Iterable[Tensor]) -> float:
    """Percent of the images on which ``run`` answers as ``wanted`` says, batch by batch."""
    total = torch.zeros(2, dtype=torch.float64)
    for inputs, dense in zip(images, wanted, strict=True):
        total += met(run(inputs).float(), dense)
    good, whole = total.tolist()
    return 100 * good / max(whole, 1e-30)
