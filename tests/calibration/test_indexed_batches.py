"""Batches that are read when asked for: no image is read that is not wanted, and none is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldrf.calibration.indexed_batches import IndexedBatches
from ldrf.errors import LdrfError


def batches(number: int = 10, batch: int = 4) -> IndexedBatches:
    """Batches whose images are their own numbers."""
    return IndexedBatches(lambda rows: rows, tuple(range(number)), batch=batch)


def flat(found: IndexedBatches) -> list[int]:
    return [image for batch in found for image in batch]


def test_batches_are_read_in_order_and_again():
    data = batches()
    assert list(data) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]] == list(data)
    assert len(data) == 3 and list(data.listed()) == list(data)
    assert list(data.sized(5)) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


def test_nothing_is_read_before_it_is_asked_for():
    read: list[list[int]] = []
    data = IndexedBatches(lambda rows: read.append(rows) or rows, tuple(range(10)), batch=4)
    data.take(6).shuffled(1).split(0.5)
    list(data.listed())
    assert read == []
    next(iter(data))
    assert read == [[0, 1, 2, 3]]


@given(st.integers(1, 30), st.integers(1, 40), st.integers(0, 5))
def test_some_are_taken_at_random_and_keep_their_order(number: int, images: int, seed: int):
    some = flat(batches(number).take(images, seed))
    assert len(set(some)) == len(some) == min(images, number) and some == sorted(some)
    assert some == flat(batches(number).take(images, seed))


def test_another_seed_takes_others():
    assert len({tuple(flat(batches(30).take(5, seed))) for seed in range(5)}) == 5
    assert flat(batches().take(None)) == list(range(10))


@given(st.integers(2, 30), st.floats(0.0, 1.0), st.integers(0, 5))
def test_a_split_loses_no_image_and_leaves_some_on_either_side(number: int, share: float, seed: int):
    rest, apart = (flat(part) for part in batches(number).split(share, seed))
    assert sorted(rest + apart) == list(range(number)) and rest and apart
    assert abs(len(apart) - share * number) <= 1


def test_shuffling_is_repeatable_and_loses_no_image():
    first, other = (flat(batches(30).shuffled(seed)) for seed in (0, 1))
    assert first == flat(batches(30).shuffled(0)) != other
    assert sorted(first) == sorted(other) == list(range(30))


def test_too_few_images_are_refused():
    with pytest.raises(LdrfError, match="must be at least 1. Got 0"):
        batches().take(0)
    with pytest.raises(LdrfError, match="At least 2 images are needed to set some apart. Got 1"):
        batches(1).split(0.5)
