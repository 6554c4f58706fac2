"""A module that is left out keeps its names, computes nothing, and adds a constant at any size."""

import copy

import pytest
import torch
from networks import Deep, Tokens, images, make

from ldrf.units.left_out import LeftOut, StandIn, constant_tensors, leave_out, read_stand_ins, stand_ins_of
from ldrf.units.module_surgery import write_tensors

BLOCK = (
    StandIn("two.conv1", 1),
    StandIn("two.bn1", 1),
    StandIn("two.conv2", 1),
    StandIn("two.bn2", 1, "two.bn2.bias"),
)


def test_the_model_adds_the_constant_at_any_size_and_keeps_its_names():
    dense = make(Deep)
    slim = copy.deepcopy(dense)
    leave_out(slim, BLOCK)
    values = torch.randn(16)
    write_tensors(slim, constant_tensors(BLOCK, values, slim))
    assert list(slim.state_dict()) == list(dense.state_dict()) and type(slim) is Deep
    assert slim.two.conv1.weight.shape[0] == 0 and torch.equal(slim.two.bn2.bias, values)  # pyright: ignore

    for rows, side in ((1, 8), (3, 12)):
        x = images(rows, shape=(3, side, side))
        with torch.no_grad():
            stream = dense.one(torch.relu(dense.stem(x)))  # pyright: ignore
            wanted = torch.relu(stream + values.view(1, -1, 1, 1))
            given = stream.clone()
            assert torch.equal(slim.two(given), wanted)  # pyright: ignore
            assert torch.equal(given, stream), "what a module in place would do to its input"


def test_a_weight_holds_the_constant_where_there_is_no_bias():
    slim = make(Deep)
    stand_ins = (StandIn("norm", 1), StandIn("enter", 1), StandIn("leave", 1, "leave.weight"))
    leave_out(slim, stand_ins)
    values = torch.arange(16.0)
    write_tensors(slim, constant_tensors(stand_ins, values, slim))
    assert slim.leave.weight.shape == (16, 1, 1, 1)  # pyright: ignore
    assert torch.equal(slim.leave(torch.zeros(2, 0, 3, 3)), values.view(1, -1, 1, 1).expand(2, 16, 3, 3))  # pyright: ignore


def test_it_trains_copies_and_tells_what_it_is():
    slim = make(Deep)
    leave_out(slim, BLOCK)
    copied = copy.deepcopy(slim).train()
    copied(images(4)).square().mean().backward()
    assert copied.two.bn2.bias.grad.abs().sum() > 0  # pyright: ignore
    assert stand_ins_of(copied) == list(BLOCK)
    assert isinstance(copied.get_submodule("two.conv1"), LeftOut) and "left out" in str(copied.two)


def test_a_tuple_comes_back_as_a_tuple():
    slim = make(Tokens)
    leave_out(slim, (StandIn("attention", 2, "attention.out_proj.bias", 2),))
    value, weights = slim.attention(torch.zeros(2, 4, 12), None)  # pyright: ignore
    assert weights is None and value.shape == (2, 4, 12)


@pytest.mark.parametrize(
    "entries",
    [
        ["two.conv1"],
        [{"module": "two.conv1"}],
        [{"module": "nobody", "dim": 1, "holder": None, "items": 0}],
        [{"module": "", "dim": 1, "holder": None, "items": 0}],
        [{"module": "two.bn2", "dim": 1, "holder": "one.bn2.bias", "items": 0}],
        [{"module": "two.bn2", "dim": "1", "holder": None, "items": 0}],
        [{"module": "two.bn2", "dim": 1, "holder": None, "items": 10**9}],
    ],
)
def test_what_a_file_says_is_checked(entries):
    with pytest.raises(ValueError, match=r"left out"):
        read_stand_ins(entries, make(Deep))
