"""Models are tried with other numbers of examples than they are given."""

import pytest
import torch
from fixed_batches import Counted, Fixed, Folded, One
from networks import images
from torch import nn

from ldrf.inputs import Inputs
from ldrf.runtime.device import OutOfMemory
from ldrf.tracing.batch_sizes import takes, takes_any_batch


class Pairs(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one, other = x.view(-1, 2, 3).unbind(1)
        return one - other


@pytest.mark.parametrize(
    ("model", "x", "any_size"),
    [
        (Fixed(), images(8, shape=(3, 4, 4)), False),
        (Fixed(2), images(2, shape=(3, 4, 4)), False),
        (Fixed(3), images(3, shape=(3, 4, 4)), False),
        (One(), images(1, shape=(3, 4, 4)), False),
        (Folded(), images(4, shape=(5, 6)), False),
        (Pairs(), images(4, shape=(3,)), False),
        (Counted(), images(5, shape=(3, 4, 4)), True),
        (nn.Linear(3, 2), images(1, shape=(3,)), True),
    ],
)
def test_a_model_that_fixes_its_batch_is_told_from_others(model, x, any_size):
    inputs = Inputs((x,), {})
    assert takes(model, inputs) and takes_any_batch(model, inputs) is any_size


def test_a_lack_of_memory_says_nothing_about_the_code():
    class Large(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise OutOfMemory("no room")

    assert takes_any_batch(Large(), Inputs((images(2),), {}))
