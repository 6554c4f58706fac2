"""Calibration images in chunks: all of them once, some set apart to judge, and their bytes taken off the budget."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from ldrf.calibration.calibration_set import Calibration, read_calibration
from ldrf.errors import LdrfError


def read(sizes: list[int], rows: int = 8, held_out: float = 0.2) -> Calibration:
    values = torch.arange(float(sum(sizes)))[:, None].expand(-1, 4)
    return read_calibration(nn.Linear(4, 2), values.split(sizes), rows, held_out, False)


@given(sizes=st.lists(st.integers(1, 20), min_size=1, max_size=6), rows=st.integers(1, 9))
def test_every_image_is_in_one_chunk(sizes, rows):
    found = read(sizes, rows)
    order = torch.cat([chunk.args[0][:, 0] for chunk in found.chunks])
    assert order.tolist() == list(range(sum(sizes))) and found.examples == sum(sizes)
    assert all(chunk.rows <= rows for chunk in found.chunks)
    assert [i for c in found.own() for i in found.images(c)] == list(range(sum(sizes)))


@given(size=st.integers(2, 60), share=st.floats(0.1, 0.5))
def test_some_chunks_only_judge(size, share):
    found = read([size], 8, share)
    assert found.held_out and found.fitting and not found.held_out & set(found.fitting)


def test_a_single_image_fits_and_judges():
    assert read([1]).fitting == sorted(read([1]).held_out) == [0]


@given(size=st.integers(2, 200), images=st.integers(1, 250), share=st.floats(0.1, 0.5))
def test_the_first_images_fit_and_judge(size, images, share):
    whole = read([size], 8, share)
    few = whole.first(images)
    assert few.examples >= min(images, size) and few.held_out and few.fitting and not few.held_out & set(few.fitting)
    assert few.chunks == whole.chunks[: len(few.chunks)] and few.held_out <= whole.held_out
    assert few is whole or images < size
    assert whole.first(None) is whole and len(few.starts) == len(few.sizes) == len(few.chunks)


def test_a_single_image_is_the_first_of_all():
    assert read([1]).first(1).examples == 1


def test_no_batches_are_refused():
    with pytest.raises(LdrfError, match="at least one batch"):
        read_calibration(nn.Linear(4, 2), [], 8, 0.2, False)


def test_images_take_their_part_of_the_budget():
    found = read([64])  # 64 rows of 4 numbers of 4 bytes
    assert found.room(4096) == 4096 - 1024
    assert found.room(1200) == 300  # a quarter is always left to activations


@given(sizes=st.lists(st.integers(1, 20), min_size=1, max_size=6), rows=st.integers(1, 9))
def test_halved_chunks_have_the_same_images_and_judge_by_the_same(sizes, rows):
    whole = read(sizes, rows)
    halved = whole.halved()
    order = torch.cat([chunk.args[0][:, 0] for chunk in halved.chunks])
    assert order.tolist() == list(range(sum(sizes))) and halved.sizes == tuple(c.rows for c in halved.chunks)
    assert max(halved.sizes) == -(-max(whole.sizes) // 2) and halved.halvings == 1
    judging = [[i for c in sorted(found.held_out) for i in found.images(c)] for found in (whole, halved)]
    assert judging[0] == judging[1]


@given(sizes=st.lists(st.integers(1, 20), min_size=1, max_size=6), size=st.integers(1, 9))
def test_batches_of_one_size_have_the_images_in_order(sizes, size):
    whole = read(sizes)
    assert whole.batch == sizes[0]
    if sum(sizes) < size:
        return
    found = whole.in_batches(size, 0.2)
    order = torch.cat([chunk.args[0][:, 0] for chunk in found.chunks])
    assert order.tolist() == list(range(sum(sizes) // size * size)) and set(found.sizes) == {size}
    assert found.example.fixed and found.held_out and found.fitting


def test_the_first_images_know_how_many_more_there_are():
    whole = read([48], 8, 0.25)
    few = whole.first(16)
    assert 16 <= few.examples < 48 and few.examples + few.others == whole.examples == 48 and not whole.others
    assert few.held_out and few.fitting
