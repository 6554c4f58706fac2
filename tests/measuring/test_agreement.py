"""Agreement: the share of equal first guesses, or of the variance that is met."""

import pytest
import torch

from ldrf.inputs import Inputs
from ldrf.measuring.agreement import agreement, met


def test_classifiers_agree_by_their_first_guess():
    dense = torch.eye(4)
    mine = dense.clone()
    mine[0] = torch.tensor([0.0, 9.0, 0.0, 0.0])
    assert met(mine, dense).tolist() == [3, 4]


def test_other_outputs_by_the_variance_they_meet():
    dense = torch.randn(8, 3, 5)
    good, whole = met(dense.mean(0).expand_as(dense), dense).tolist()
    assert good == pytest.approx(0, abs=1e-3 * whole)
    assert met(dense, dense)[0] == pytest.approx(float(whole))


def test_batches_are_summed():
    parts = [Inputs((torch.zeros(3, 2),), {}), Inputs((torch.zeros(1, 2),), {})]
    wanted = [torch.tensor([[1.0, 0.0]]).expand(3, 2), torch.tensor([[0.0, 1.0]])]
    right = torch.tensor([1.0, 0.0])
    assert agreement(lambda x: right.expand(x.rows, 2), parts, wanted) == 75
