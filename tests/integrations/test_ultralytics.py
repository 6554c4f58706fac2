"""A slim model goes back into the object it came from; blocks know their new halves, and training keeps the model."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from networks import images
from torch import Tensor, nn

import ldrf
from ldrf.errors import LdrfError
from ldrf.integrations.ultralytics import into_yolo, slim_trainer


class Halved(nn.Module):
    """A block as detectors have it: halves by chunk when it runs, by numbers of its own when it is exported."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.c = c
        self.cv1, self.inner, self.cv2 = nn.Conv2d(3, 2 * c, 1), nn.Conv2d(c, c, 1), nn.Conv2d(3 * c, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self._joined(self.cv1(x).chunk(2, 1))

    def forward_split(self, x: Tensor) -> Tensor:
        return self._joined(self.cv1(x).split((self.c, self.c), 1))

    def _joined(self, halves: tuple[Tensor, ...]) -> Tensor:
        return self.cv2(torch.cat([*halves, torch.relu(self.inner(halves[1]))], 1))


class Trainer:
    def get_model(self, weights: object = None, cfg: object = None) -> nn.Module:
        return Halved(8)


def object_of(model: nn.Module) -> Any:
    return SimpleNamespace(model=model, predictor="old", _smart_load=lambda name: {"trainer": Trainer}[name])


@pytest.mark.slow
def test_a_slim_model_is_put_back_and_its_other_forward_fits():
    dense = Halved(8).eval()
    result = ldrf.prune(dense, [images(24)], widths={"cv1": 5}, config=ldrf.PruneConfig(steps=2, joint_steps=2))
    yolo = into_yolo(object_of(Halved(8)), result.model)
    assert yolo.model is result.model and yolo.predictor is None and yolo.model.c == 5 and dense.c == 8
    x = images(2)
    assert torch.equal(yolo.model(x), yolo.model.forward_split(x))
    assert slim_trainer(yolo)().get_model(cfg="a file") is result.model


def test_something_else_is_refused():
    with pytest.raises(LdrfError, match="must be a YOLO object that holds a model. Got int"):
        into_yolo(3, Halved(8))
    with pytest.raises(LdrfError, match="holds a Linear, and the slim model is a Halved"):
        into_yolo(object_of(nn.Linear(2, 2)), Halved(8))
