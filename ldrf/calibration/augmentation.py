"""Images changed at random, so that a network does not overfit the few that it is given."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ldrf.inputs import Inputs


class Augmented(NamedTuple):
    """Changed inputs, and what share of each image [n] is that of the image before it; None where none is blended."""

    inputs: Inputs
    shares: Tensor | None = None


def augmented(inputs: Inputs, generator: torch.Generator, start: int, whole: int, blended: bool = True) -> Augmented:
    """The inputs flipped, shifted and blended where they are one batch of images; others as they are."""
    images = inputs.tensors()
    if len(images) != 1 or images[0].ndim != 4 or not images[0].is_floating_point():
        return Augmented(inputs)
    moved = inputs.map(lambda t: augment(t, generator, start, whole))
    if not blended:
        return Augmented(moved)
    shares = blend_shares(generator, start, whole)[: inputs.rows]
    return Augmented(moved.map(lambda t: blend(t, shares)), shares)


def augment(images: Tensor, generator: torch.Generator, start: int = 0, whole: int | None = None) -> Tensor:
    """Flip half of the images [n, c, h, w] and shift each by up to an eighth of its sides over zero padding.

    Where they are those from ``start`` on of a batch of ``whole`` images, they are changed as they are in that batch.
    """
    n, _, h, w = images.shape
    own, (down, right) = slice(start, start + n), (h // 8, w // 8)
    flip, device = torch.rand(whole or n, generator=generator)[own] < 0.5, images.device
    images = torch.where(flip.view(-1, 1, 1, 1).to(device), images.flip(3), images)
    padded = F.pad(images, (right, right, down, down)).permute(0, 2, 3, 1)  # [n, h + 2 down, w + 2 right, c]
    top, left = (torch.randint(0, 2 * s + 1, (whole or n, 1, 1), generator=generator)[own] for s in (down, right))
    y, x = top + torch.arange(h).view(1, -1, 1), left + torch.arange(w).view(1, 1, -1)
    place = torch.arange(n).view(-1, 1, 1).to(device), y.to(device), x.to(device)
    return padded[place].permute(0, 3, 1, 2).contiguous()


def blend_shares(generator: torch.Generator, start: int, whole: int) -> Tensor:
    """Up to a half for half of the images, and 0 for the others: those from ``start`` on of ``whole`` [whole - start].

    A network is sure of the images it was trained on, but not of two of them at once.
    """
    amount, chosen = torch.rand(2, whole, generator=generator)[:, start:]
    return torch.where(chosen < 0.5, 0.5 * amount, 0.0)


def blend(images: Tensor, shares: Tensor) -> Tensor:
    """Lay the image before it over each of the images [n, c, h, w], with a share [n] of the whole."""
    return torch.lerp(images, images.roll(1, 0), shares.view(-1, 1, 1, 1).to(images))
