"""What judges fine-tuning was not seen by the prune where that is known; elsewhere a sentence says so."""

import warnings

import pytest

from ldrf.calibration.indexed_batches import IndexedBatches
from ldrf.errors import LdrfWarning
from ldrf.finetuning.unseen import split_unseen

ALL = IndexedBatches(lambda rows: rows, tuple(range(1000)), labelled=False, batch=7)


def test_unseen_images_judge_and_all_others_train():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        training, judging = split_unseen(ALL, set(range(600)), 0.1, 0)
    assert len(judging.rows) == 100 and min(judging.rows) >= 600
    assert sorted(training.rows + judging.rows) == list(range(1000))
    assert not training.labelled and training.batch == judging.batch == 7
    assert split_unseen(ALL, set(range(600)), 0.1, 1)[1].rows != judging.rows == tuple(sorted(judging.rows))


def test_fewer_unseen_images_than_wanted_judge_alone():
    assert split_unseen(ALL, set(range(950)), 0.1, 0)[1].rows == tuple(range(950, 1000))


@pytest.mark.parametrize(("seen", "words"), [(None, "is not known"), (range(990), "saw nearly all")])
def test_where_that_cannot_be_a_sentence_says_so(seen, words):
    with pytest.warns(LdrfWarning, match=f"judged by images that the prune may have seen, as .*{words}"):
        training, judging = split_unseen(ALL, seen, 0.1, 0)
    assert (training.rows, judging.rows) == tuple(part.rows for part in ALL.split(0.1, 0))


def test_a_prune_of_other_images_leaves_all_to_judge():
    training, judging = split_unseen(ALL, set(), 0.5, 0)
    assert len(training.rows) == len(judging.rows) == 500
