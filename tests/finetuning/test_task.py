"""What there is to learn and to judge by follows from the two networks and the settings."""

import copy
from dataclasses import replace

import pytest
import torch
from networks import Chain, Residual, images, make
from torch import nn

import ldrf
from ldrf.errors import LdrfError
from ldrf.finetuning.state import TuningRun
from ldrf.finetuning.task import Task, check_teacher, make_task, ready
from ldrf.inputs import Inputs

CONFIG, EXAMPLE = ldrf.FinetuneConfig(), Inputs((images(2),), {})
MAPS = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())


def task(slim: nn.Module, dense: nn.Module | None, **changed) -> Task:
    return make_task(TuningRun.of(slim, 0.1), dense, [], EXAMPLE, replace(CONFIG, **changed))


@pytest.mark.parametrize(
    ("model", "changed", "measure"),
    [
        (make(Residual), {}, "agreement"),
        (make(Residual), {"labels": 1.0}, "accuracy"),
        (MAPS, {}, "fidelity"),
    ],
)
def test_the_measure_follows_from_outputs_and_labels(model, changed, measure):
    assert task(model, model, **changed).measure == measure


def test_the_teacher_is_a_frozen_copy():
    dense = make(Residual).half()
    teacher = task(make(Residual), dense).teacher
    assert teacher is not None and teacher is not dense and not teacher.training
    assert not any(p.requires_grad or p.dtype != torch.float32 for p in teacher.parameters())
    assert next(dense.parameters()).dtype == torch.float16


def test_blocks_are_followed_only_where_embeddings_count():
    assert task(make(Residual), make(Residual)).points == ("block1", "block2")
    assert task(make(Residual), make(Residual), embeddings=0.0).points == ()
    alone = task(make(Residual), None, logits=0.0, embeddings=0.0, labels=1.0)
    assert alone.teacher is None and alone.points == ()


@pytest.mark.parametrize(
    ("slim", "dense", "changed", "words"),
    [
        (make(Residual), None, {}, "Distillation needs the dense model"),
        (make(Residual), MAPS, {}, "outputs of the same shape"),
        (MAPS, MAPS, {"labels": 1.0}, "Labels need a classifier"),
        (nn.Linear(7, 2), nn.Linear(7, 2), {}, r"Linear cannot take a batch of shape \(2, 3, 8, 8\): mat1"),
    ],
)
def test_what_does_not_go_together_is_one_sentence(slim, dense, changed, words):
    with pytest.raises(LdrfError, match=words) as caught:
        task(slim, dense, **changed)
    assert "\n" not in str(caught.value)


def test_inputs_are_made_ready_for_the_model():
    given = Inputs((images(2).double(),), {"mask": torch.ones(2, dtype=torch.int64), "scale": 2})
    made = ready(given, torch.device("cpu"), torch.channels_last)
    assert made.args[0].dtype == torch.float32 and made.args[0].is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(made.args[0].double(), given.args[0].float().double())
    assert made.kwargs["mask"].dtype == torch.int64 and made.kwargs["scale"] == 2


def test_the_layout_suits_the_student():
    assert task(make(Chain), make(Chain)).layout == torch.channels_last
    student = nn.Sequential(nn.Conv2d(3, 4, 1, 2), nn.Flatten(), nn.Linear(64, 5))
    assert task(student, student).layout == torch.contiguous_format


def test_a_teacher_with_other_weights_than_the_pruned_model_had_is_refused(pruned):
    result = pruned(Chain)
    check_teacher(make(Chain), result.checksums)
    check_teacher(make(Chain, 1), None)  # nothing is known
    with pytest.raises(LdrfError, match=r"other weights than the one that was pruned.*--force-teacher"):
        ldrf.finetune(result, make(Chain, 1), [images(8)])
    with pytest.raises(LdrfError, match="cannot take a batch"):  # past the check
        ldrf.finetune(result, nn.Linear(2, 2), [images(8)], force_teacher=True)


def test_blocks_whose_neurons_are_others_are_not_followed():
    torch.manual_seed(0)
    dense = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4)) for _ in range(4)), nn.Linear(4, 2)).eval()
    slim, inputs = copy.deepcopy(dense), Inputs((torch.randn(16, 4),), {})
    with torch.no_grad():
        for name in ("3.0.weight", "3.0.bias", "4.weight"):  # the same neurons but for their sign
            slim.get_parameter(name).mul_(-1)
    assert make_task(TuningRun.of(dense, 0.1), dense, [], inputs, CONFIG).points == ("0", "1", "2", "3")
    assert make_task(TuningRun.of(slim, 0.1), dense, [], inputs, CONFIG).points == ("0", "1", "2")
