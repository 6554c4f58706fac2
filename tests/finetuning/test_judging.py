"""Scores and distances on held-out images, compared with all images at once."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from networks import Residual, images, make
from torch import nn

import ldrf
from ldrf.errors import LdrfError
from ldrf.finetuning.judging import cross_entropy, judge
from ldrf.finetuning.state import TuningRun
from ldrf.finetuning.task import Task, make_task
from ldrf.inputs import Inputs

X, LABELS = images(20), torch.arange(20) % 5
SLIM, DENSE = make(Residual, seed=1).eval(), make(Residual).eval()


def task(slim: nn.Module, dense: nn.Module | None, batches: list, **changed) -> Task:
    config = replace(ldrf.FinetuneConfig(), **changed)
    return make_task(TuningRun.of(slim, 0.1), dense, batches, Inputs((X[:2],), {}), config)


def relative(mine: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((mine - wanted).square().mean() / wanted.var(correction=0))


@torch.no_grad()
def test_without_labels_equal_answers_count():
    score, distance, rows = judge(SLIM, task(SLIM, DENSE, [X]))
    assert (score, rows) == (float((SLIM(X).argmax(1) == DENSE(X).argmax(1)).float().mean()), 20)
    assert distance == pytest.approx(relative(SLIM(X), DENSE(X)), rel=1e-4)
    assert judge(DENSE, task(SLIM, DENSE, [X])) == (1.0, pytest.approx(0.0, abs=1e-9), 20)


@torch.no_grad()
def test_with_labels_right_answers_count_whatever_the_batches():
    wanted = float((SLIM(X).argmax(1) == LABELS).float().mean()), float(F.cross_entropy(SLIM(X), LABELS))
    for size in (20, 7):
        batches = list(zip(X.split(size), LABELS.split(size), strict=True))
        score, distance, rows = judge(SLIM, task(SLIM, DENSE, batches, labels=1.0))
        assert (score, distance, rows) == (pytest.approx(wanted[0]), pytest.approx(wanted[1], rel=1e-4), 20)


@torch.no_grad()
def test_outputs_that_are_not_scores_are_judged_by_their_variance():
    dense, slim = (nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval() for _ in range(2))
    score, distance, _ = judge(slim, task(slim, dense, [X]))
    wanted = dense(X)
    lost = (wanted - slim(X)).square().sum() / (wanted - wanted.mean(0)).square().sum()
    assert score == pytest.approx(1 - float(lost), rel=1e-4)
    assert distance == pytest.approx(relative(slim(X), wanted), rel=1e-4)


def test_labels_of_no_class_are_refused():
    scores = torch.randn(3, 4)
    assert torch.equal(cross_entropy(scores, torch.tensor([0, 3, 1])), F.cross_entropy(scores, torch.tensor([0, 3, 1])))
    for wrong in ([0, 4, 1], [-1, 0, 0]):
        with pytest.raises(LdrfError, match="Labels must lie from 0 to 3, as the model has 4 classes. Got"):
            cross_entropy(scores, torch.tensor(wrong))


def test_the_label_of_a_blended_image_is_its_own_and_that_of_the_one_before_it():
    scores, shares = torch.randn(5, 5, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 0.5, 0.2, 0, 0.1])
    own, before = F.one_hot(LABELS[:5], 5), F.one_hot(LABELS[:5].roll(1), 5)
    wanted = F.cross_entropy(scores, (1 - shares[:, None]) * own + shares[:, None] * before)
    torch.testing.assert_close(cross_entropy(scores, LABELS[:5], shares), wanted)
    torch.testing.assert_close(cross_entropy(scores, LABELS[:5], torch.zeros(5)), cross_entropy(scores, LABELS[:5]))
