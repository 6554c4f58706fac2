"""Top-1 and top-5 are counted right, from batches of every form."""

import pytest
import torch
from torch import Tensor, nn

from ldrf.errors import LdrfError
from ldrf.measuring.accuracy import Accuracy, measure_accuracy


class Scores(nn.Module):
    """Hands its input back as the scores."""

    def forward(self, x: Tensor) -> Tensor:
        return x


SCORES = torch.tensor([[9.0, 1, 2, 3, 4, 5], [1, 9, 2, 3, 4, 5], [9, 1, 8, 7, 6, 5], [9, 8, 7, 6, 5, 1]])
LABELS = torch.tensor([0, 1, 2, 5])


@pytest.mark.parametrize("batch", [(SCORES, LABELS), [SCORES, LABELS], {"x": SCORES, "labels": LABELS}])
def test_top1_and_top5_of_every_batch_form(batch):
    assert measure_accuracy(Scores(), [batch, batch]) == Accuracy(50.0, 75.0, 8)


def test_fewer_than_five_classes_are_fine():
    assert measure_accuracy(Scores(), [(torch.eye(3), torch.arange(3))]).top5 == 100.0


def test_the_mode_is_restored_even_after_an_error():
    model = Scores().train()
    measure_accuracy(model, [(SCORES, LABELS)])
    assert model.training
    with pytest.raises(LdrfError):
        measure_accuracy(model, [SCORES])
    assert model.training


@pytest.mark.parametrize(
    ("model", "batches", "words"),
    [
        (Scores(), [], "no labelled images"),
        (Scores(), [SCORES], "needs batches with labels"),
        (nn.Linear(3, 2), [(SCORES, LABELS)], r"can't take a batch of shape \[4, 6\]"),
        (Scores(), [(SCORES.view(4, 6, 1), LABELS)], "needs a classifier"),
    ],
)
def test_wrong_data_is_one_sentence(model, batches, words):
    with pytest.raises(LdrfError, match=words):
        measure_accuracy(model, batches)
