"""Whether a model takes any number of examples, or its code has one number written into it."""

import torch
from torch import nn

from ldrf.inputs import Inputs, repeated
from ldrf.runtime.device import OutOfMemory, model_device
from ldrf.runtime.randomness import same_random_numbers

SIZES = (2, 3)  # that a model is tried on: one that fixes its batch, or takes pairs, cannot take both


def takes_any_batch(model: nn.Module, inputs: Inputs) -> bool:
    """Whether the model runs with other numbers of these examples."""
    return all(takes(model, repeated(inputs, rows)) for rows in SIZES)


@torch.no_grad()
def takes(model: nn.Module, inputs: Inputs) -> bool:
    """Whether the model runs on these inputs; a lack of memory says nothing about its code."""
    try:
        with same_random_numbers():
            inputs.to(model_device(model)).call(model)
    except OutOfMemory:
        return True
    except Exception:
        return False
    return True
