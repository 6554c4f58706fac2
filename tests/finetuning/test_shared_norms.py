"""A BatchNorm whose statistics are summed over processes is torch's own where there is one process.

What several processes make of it is compared in tests/runtime/test_processes.py.
"""

import copy

import pytest
import torch
from torch import nn

from ldrf.finetuning.shared_norms import shared_norm, shared_norms


def norm(kind=nn.BatchNorm2d, **given) -> nn.Module:
    made = kind(3, **given)
    if made.affine:
        made.weight.data, made.bias.data = torch.tensor([0.5, 2.0, -1.0]), torch.tensor([0.1, 0.0, 3.0])
    return made


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    ("made", "shape"),
    [
        (norm(), (7, 3, 4, 4)),
        (norm(momentum=None), (7, 3, 4, 4)),
        (norm(affine=False), (7, 3, 4, 4)),
        (norm(track_running_stats=False), (7, 3, 4, 4)),
        (norm(nn.BatchNorm1d), (9, 3)),
        (norm(nn.BatchNorm3d), (4, 3, 2, 2, 2)),
    ],
)
def test_values_slopes_and_statistics_are_those_of_torch(made, shape, training):
    torch.manual_seed(0)
    x, weights = torch.randn(shape) * 3 + 1, torch.randn(shape)
    outcomes = []
    for call in (lambda m, t: m(t), shared_norm):
        module, given = copy.deepcopy(made).train(training), x.clone().requires_grad_(True)
        for _ in range(2):
            y = call(module, given)
        (y * weights).square().sum().backward()
        outcomes.append([y, given.grad, *(p.grad for p in module.parameters()), *module.buffers()])
    for one, other in zip(*outcomes, strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-4)


def test_the_norms_are_their_own_again_afterwards():
    model = nn.Sequential(norm(), nn.Sequential(norm()))
    with pytest.raises(KeyError), shared_norms(model, True):
        assert "forward" in vars(model[0]) and "forward" in vars(model[1][0])
        raise KeyError
    assert "forward" not in vars(model[0]) and "forward" not in vars(model[1][0])
    with shared_norms(model, False):
        assert "forward" not in vars(model[0])
