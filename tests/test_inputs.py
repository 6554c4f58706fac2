"""Batches of every shape a data loader gives become the arguments of one forward call."""

import warnings
from collections import OrderedDict, namedtuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import ldrf
from ldrf.errors import LdrfError
from ldrf.inputs import Inputs, chunked, made_up_inputs, read_inputs, regrouped


class One(nn.Module):
    def forward(self, x, mask=None):
        return x


class Two(nn.Module):
    def forward(self, image, vector):
        return image


class Any(nn.Module):
    def forward(self, **given):
        return given


X, Y, LABEL = torch.randn(4, 3), torch.randn(4, 2), torch.arange(4)


@pytest.mark.parametrize(
    ("model", "batch", "args", "kwargs"),
    [
        (One(), X, [X], {}),
        (One(), (X, LABEL), [X], {}),
        (One(), [X, LABEL], [X], {}),
        (One(), namedtuple("Batch", "x y")(X, LABEL), [X], {}),
        (Two(), (X, Y, LABEL), [X, Y], {}),
        (Two(), {"vector": Y, "label": LABEL, "image": X}, [], {"vector": Y, "image": X}),
        (One(), OrderedDict(x=X, label=LABEL), [], {"x": X}),
        (Any(), {"a": X, "b": Y}, [], {"a": X, "b": Y}),
    ],
)
def test_what_the_model_takes_is_picked_and_labels_are_left(model, batch, args, kwargs):
    found = read_inputs(model, batch)
    assert all(a is b for a, b in zip(found.args, args, strict=True))
    assert list(found.kwargs) == list(kwargs) and all(found.kwargs[k] is v for k, v in kwargs.items())


@pytest.mark.parametrize(
    ("batch", "text"),
    [
        ("images", "must be a tensor, a tuple or a dict. Got str"),
        (3, "Got int"),
        ({"label": LABEL}, r"must be those the model takes \(x, mask\). Got label"),
        ([], "at least one tensor"),
        (X[:0], "non-zero number of rows"),
        (torch.tensor(1.0), "non-zero number of rows"),
    ],
)
def test_a_batch_without_anything_to_run_is_refused(batch, text):
    with pytest.raises(LdrfError, match=text):
        read_inputs(One(), batch)


def test_tensors_of_one_batch_have_the_same_rows():
    with pytest.raises(LdrfError, match=r"same, non-zero number of rows. Got \[2, 4\]"):
        read_inputs(Two(), (X, Y[:2]))


@given(rows=st.lists(st.integers(1, 9), min_size=1, max_size=4), size=st.integers(1, 5))
def test_chunks_are_the_batches_in_order(rows, size):
    batches = [(torch.randn(n, 2).double(), torch.arange(n)) for n in rows]
    chunks = list(chunked(Two(), iter(batches), size))
    assert all(1 <= c.rows <= size for c in chunks)
    assert all(c.args[0].dtype is torch.float32 and c.args[1].dtype is torch.int64 for c in chunks)
    assert torch.equal(torch.cat([c.args[0] for c in chunks]), torch.cat([b[0] for b in batches]).float())
    assert torch.equal(torch.cat([c.args[1] for c in chunks]), torch.cat([b[1] for b in batches]))


def test_one_tensor_is_one_batch_and_a_number_is_none():
    assert [c.rows for c in chunked(One(), X, 3)] == [3, 1]
    with pytest.raises(LdrfError, match="must be an iterable. Got int"):
        list(chunked(One(), 3, 4))  # pyright: ignore


class Labelled(nn.Module):
    def forward(self, pixels, labels=None, **others):
        return pixels


class NeedsLabels(nn.Module):
    def forward(self, pixels, labels):
        return pixels


def test_labels_are_left_out_where_the_model_can_do_without():
    batch = {"pixels": X, "labels": LABEL, "label": LABEL}
    assert set(read_inputs(Labelled(), batch).kwargs) == {"pixels"}
    assert set(read_inputs(NeedsLabels(), batch).kwargs) == {"pixels", "labels"}


def test_a_scripted_model_is_refused_with_what_to_pass_instead():
    told = "pass the model as it was before torch.jit.script"
    with warnings.catch_warnings(), pytest.raises(LdrfError, match=told):
        warnings.simplefilter("ignore")  # torch.jit is deprecated, and its copies warn of their own gradients
        ldrf.inspect(torch.jit.script(nn.Sequential(nn.Linear(3, 3))), [X])  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("batch", [{"picture": torch.ones(2, 3)}, {"image": torch.ones(2, 3), "vektor": torch.ones(2)}])
def test_names_that_do_not_fit_are_told_with_those_that_would(batch):
    with pytest.raises(LdrfError, match=rf"those the model takes \(image, vector\). Got {', '.join(batch)}\."):
        read_inputs(Two(), batch)


@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=6), rows=st.integers(1, 9))
def test_regrouped_rows_keep_their_order_and_fill_whole_groups(sizes, rows):
    values = torch.arange(float(sum(sizes)))
    parts = [Inputs((part,), {"double": 2 * part, "flag": 3}) for part in values.split(sizes)]
    groups = list(regrouped(parts, rows))
    assert len(groups) == sum(sizes) // rows and all(g.rows == rows and g.fixed for g in groups)
    for i, group in enumerate(groups):
        wanted = values[i * rows : (i + 1) * rows]
        assert torch.equal(group.args[0], wanted) and torch.equal(group.kwargs["double"], 2 * wanted)
        assert group.kwargs["flag"] == 3


def test_a_fixed_number_of_rows_stays_and_is_noted():
    fixed, free = (Inputs((X,), {}, fixed) for fixed in (True, False))
    assert fixed.first(1).rows == fixed.to(X.device).first(2).rows == len(X) and free.first(1).rows == 1
    assert fixed.described()["rows"] == len(X) and "rows" not in free.described()
    again = made_up_inputs(fixed.described(), 1)
    assert again.fixed and again.args[0].shape == X.shape and not made_up_inputs(free.described(), 1).fixed
    for rows in (0, -1, True, "3", 1.5):
        with pytest.raises(LdrfError, match="number of rows must be a whole number from 1 up"):
            made_up_inputs({**free.described(), "rows": rows}, 1)
