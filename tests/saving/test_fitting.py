"""Saved tensors must cover a dense model, be no larger than its own, and run together."""

import copy

import pytest
import torch
from networks import Chain, make

from ldrf.errors import LdrfError
from ldrf.saving.fitting import check_fits, check_runs

DENSE = make(Chain).eval()
STATE = DENSE.state_dict()
INPUTS = {"args": [{"shape": [3, 8, 8], "dtype": "float32"}], "kwargs": {}}


def test_the_dense_tensors_and_narrower_ones_fit(tmp_path):
    check_fits(tmp_path, STATE, STATE)
    check_fits(tmp_path, {**STATE, "conv1.weight": STATE["conv1.weight"][:2]}, STATE)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"conv9.weight": torch.zeros(1)}, "it has no tensor 'conv9.weight'"),
        ({"conv1.weight": None}, "it lacks the tensor 'conv1.weight'"),
        ({"fc.bias": torch.zeros(6)}, r"'fc.bias' must be no larger than \(5,\). Got \(6,\) instead"),
        ({"fc.bias": torch.zeros(0)}, r"'fc.bias' must be no larger than \(5,\). Got \(0,\) instead"),
        ({"fc.bias": torch.zeros(5, 1)}, "'fc.bias' must be no larger than"),
        ({"fc.bias": torch.zeros(5, dtype=torch.int64)}, "'fc.bias' must be of torch.float32. Got torch.int64"),
        ({"fc.bias": torch.zeros(5, dtype=torch.complex64)}, "'fc.bias' must be of torch.float32"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, change, words):
    tensors = {name: tensor for name, tensor in {**STATE, **change}.items() if tensor is not None}
    with pytest.raises(LdrfError, match=f"does not fit this model: .*{words}"):
        check_fits(tmp_path, tensors, STATE)


def test_one_of_two_names_of_a_shared_tensor_is_enough(tmp_path):
    tied = {"a": STATE["fc.bias"], "b": STATE["fc.bias"]}
    check_fits(tmp_path, {"a": torch.zeros(5)}, tied)
    with pytest.raises(LdrfError, match="lacks the tensor 'b'"):
        check_fits(tmp_path, {"a": torch.zeros(5)}, {**tied, "b": STATE["fc.bias"].clone()})


def test_layers_that_do_not_fit_one_another_are_named(tmp_path, pruned):
    slim = pruned(Chain).model
    check_runs(tmp_path, INPUTS, DENSE, slim)
    broken = copy.deepcopy(slim)
    broken.conv2 = torch.nn.Conv2d(5, broken.bn2.num_features, 3, padding=1)
    with pytest.raises(LdrfError, match=r"its tensors do not fit one another \(.*channel.*\)"):
        check_runs(tmp_path, INPUTS, DENSE, broken)
    broken = copy.deepcopy(slim)
    broken.fc = torch.nn.Linear(broken.fc.in_features, 4)
    with pytest.raises(LdrfError, match=r"do not fit one another \(other outputs\)"):
        check_runs(tmp_path, INPUTS, DENSE, broken)


@pytest.mark.parametrize("described", [None, {"args": [{"shape": [4, 8, 8], "dtype": "float32"}], "kwargs": {}}])
def test_inputs_that_the_dense_model_does_not_take_check_nothing(tmp_path, described):
    check_runs(tmp_path, described, DENSE, torch.nn.Linear(1, 1))
