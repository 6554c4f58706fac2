"""Channels last where it is safe and the model takes it, torch's usual order for all others."""

import copy

import pytest
import torch
from networks import Residual, images, make
from torch import Tensor, nn

import ldrf
from ldrf.inputs import Inputs
from ldrf.runtime.layout import lay_out, layout_for

LAST, USUAL = torch.channels_last, torch.contiguous_format


class Viewed(nn.Module):
    """Looks at a map as a vector, which works in the usual order alone."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 6, 3, padding=1), nn.Linear(6 * 64, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.conv(x).relu().view(len(x), -1))


def strided(inputs: int, kernel: int = 1, groups: int = 1) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, inputs, 3, padding=1), nn.Conv2d(inputs, 4, kernel, 2, groups=groups))


@pytest.mark.parametrize(
    ("model", "layout"),
    [
        (make(Residual), LAST),
        (Viewed(), USUAL),
        (strided(4), USUAL),
        (strided(16, groups=4), USUAL),
        (strided(8), LAST),
        (strided(4, kernel=3), LAST),
    ],
)
def test_the_layout_is_one_the_model_can_be_trained_in(model, layout):
    assert layout_for(model, Inputs((images(2, shape=(3, 8, 8)),), {})) == layout


@pytest.mark.parametrize("model", [Viewed(), strided(4)])
def test_such_models_are_fine_tuned(model):
    dense, x = copy.deepcopy(model), images(32, shape=(3, 8, 8))
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(0.9)
    result = ldrf.finetune(model, dense, [x], config=ldrf.FinetuneConfig(epochs=2, batch=8, rate=1e-2, augment=False))
    assert len(result.epochs) == 2 and result.ended >= result.began
    with torch.no_grad():
        assert (result.model(x) - dense(x)).square().mean() < (model(x) - dense(x)).square().mean()


@pytest.mark.slow
def test_a_model_given_with_channels_last_is_pruned_in_the_usual_order():
    layers = [nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 4, 1, 2), nn.ReLU(), nn.Conv2d(4, 5, 3)]
    model, x = nn.Sequential(*layers).eval(), images(32, shape=(3, 8, 8))
    config = ldrf.PruneConfig(steps=20, joint_steps=20)
    plain, last = (
        ldrf.prune(given, [x.to(memory_format=layout)], widths={"0": 4}, config=config).model
        for given, layout in ((model, USUAL), (lay_out(copy.deepcopy(model), LAST), LAST))
    )
    assert last.get_parameter("0.weight").is_contiguous(memory_format=LAST)
    with torch.no_grad():
        assert torch.allclose(plain(x), last(x), atol=1e-5)
