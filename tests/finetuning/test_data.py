"""Batches of any form become samples; each process takes its rows of them."""

import pytest
import torch
from networks import Mlp, images, make

from ldrf.errors import LdrfError
from ldrf.finetuning import data
from ldrf.finetuning.data import in_memory, own_batches, parts, read_sample

MODEL, X, LABELS = make(Mlp), images(10), torch.arange(10) % 5


def pretend(monkeypatch, rank: int, count: int) -> None:
    """Let this process take itself for one of several; they were given the same."""
    monkeypatch.setattr(data, "count", lambda: count)
    monkeypatch.setattr(data, "rank", lambda: rank)
    monkeypatch.setattr(data, "share", lambda rows: (rows * rank // count, rows * (rank + 1) // count))


def test_labels_are_read_only_where_they_are_wanted():
    sample = read_sample(MODEL, (X, LABELS), True)
    assert torch.equal(sample.inputs.args[0], X) and sample.labels is not None and torch.equal(sample.labels, LABELS)
    assert read_sample(MODEL, (X, LABELS), False).labels is None
    assert read_sample(MODEL, sample, True) is sample
    with pytest.raises(LdrfError, match=r"every batch must be \(inputs, labels\)"):
        read_sample(MODEL, X, True)


def test_batches_lie_side_by_side_and_are_read_in_any_order():
    batches = in_memory(MODEL, [(X[:4], LABELS[:4]), (X[4:], LABELS[4:])], True)
    sample = batches.read([9, 0, 5])
    assert len(batches.rows) == 10 and torch.equal(sample.inputs.args[0], X[[9, 0, 5]])
    assert torch.equal(sample.labels, LABELS[[9, 0, 5]])
    assert torch.equal(in_memory(MODEL, X, False).read([3]).inputs.args[0], X[3:4])


@pytest.mark.parametrize(
    ("batches", "words"),
    [
        ([], "at least one batch"),
        (7, "must be an iterable. Got int instead"),
        ([X, images(4, shape=(3, 6, 6))], "inputs of the same shapes"),
    ],
)
def test_what_cannot_be_joined_is_refused(batches, words):
    with pytest.raises(LdrfError, match=words):
        in_memory(MODEL, batches, False)


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("count", [1, 3])
def test_the_parts_of_all_processes_are_the_batches(monkeypatch, indexed, count):
    own = []
    for rank in range(count):
        pretend(monkeypatch, rank, count)
        batches = in_memory(MODEL, X, False).sized(4) if indexed else X.split(4)
        own.append(list(parts(MODEL, batches, False)))
    for step, batch in enumerate(X.split(4)):
        pieces = [steps[step] for steps in own]
        assert sum(piece.weight for piece in pieces) == pytest.approx(1) and {p.whole for p in pieces} == {len(batch)}
        if len(batch) < count:
            assert all(torch.equal(piece.sample.inputs.args[0], batch) and not piece.divided for piece in pieces)
        else:
            assert torch.equal(torch.cat([piece.sample.inputs.args[0] for piece in pieces]), batch)
            assert [batch[piece.start, 0, 0, 0] for piece in pieces] == [
                p.sample.inputs.args[0][0, 0, 0, 0] for p in pieces
            ]


@pytest.mark.parametrize("indexed", [False, True])
def test_each_batch_to_judge_by_is_gone_through_by_one(monkeypatch, indexed):
    seen = []
    for rank in range(2):
        pretend(monkeypatch, rank, 2)
        batches = in_memory(MODEL, X, False).sized(4) if indexed else X.split(4)
        seen.append([read_sample(MODEL, batch, False).inputs.args[0] for batch in own_batches(batches)])
    assert [len(batches) for batches in seen] == [2, 1]
    assert torch.equal(torch.cat([seen[0][0], seen[1][0], seen[0][1]]), X)
