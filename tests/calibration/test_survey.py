"""What one dense pass gathers, and what it leaves out because it would not fit."""

import warnings
from dataclasses import replace

import pytest
import torch
from networks import Chain, images, make
from torch import Tensor

import ldrf
from ldrf.calibration.survey import survey
from ldrf.errors import LdrfWarning
from ldrf.runtime.progress import progress


def test_layers_whose_gram_matrix_would_not_fit_have_no_rank_on_data(monkeypatch):
    model, batches = make(Chain), [images(32)]
    whole = ldrf.analyze(model, batches, energy=0.6)
    monkeypatch.setattr("ldrf.calibration.survey.COLUMNS", 30)  # conv1 has 27 weights per output, conv2 108, fc 16
    partial = ldrf.analyze(model, batches, energy=0.6)
    assert partial.ranks == whole.ranks
    assert partial.data_ranks == {**whole.data_ranks, "conv2": None} and None not in whole.data_ranks.values()
    assert "conv2" in str(partial)


@torch.no_grad()
def test_a_survey_is_what_eager_neurons_are_on_the_fitting_images(network):
    """Zeros, sizes and the Gram matrix of a linear consumer's inputs, against the model run by itself."""
    net = network(Chain)
    surveys = survey(net.trace, net.dense, net.units, net.calibration, 0, progress)
    unit = next(unit for unit in net.units if unit.name == "conv2")
    read: list[Tensor] = []
    hook = net.model.fc.register_forward_pre_hook(lambda _, args: read.append(args[0]))
    for index in net.calibration.fitting:
        net.calibration.chunks[index].call(net.model)
    hook.remove()
    x = torch.cat(read).double()
    assert x.shape[1] == unit.width
    torch.testing.assert_close(surveys["conv2"].activity, x.abs().mean(0), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(surveys["conv2"].zeros, (x <= 0).double().mean(0))
    (moments,) = surveys["conv2"].moments
    constant = torch.cat([x, torch.ones(len(x), 1)], 1)
    assert moments.rows == len(x)
    torch.testing.assert_close(moments.gram, constant.T @ constant, rtol=1e-4, atol=1e-3)


def test_too_few_rows_are_said_once(network):
    net = network(Chain)
    few = replace(net.calibration, chunks=net.calibration.chunks[:1], sizes=(2,), held_out=frozenset())
    one = replace(few, chunks=(few.chunks[0].map(lambda t: t[:2]),), starts=(0,))
    with pytest.warns(
        LdrfWarning, match=r"2 calibration images give 2 rows for the 16 weights per output of layer 'fc'"
    ):
        survey(net.trace, net.dense, net.units, one, 0, progress)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        survey(net.trace, net.dense, net.units, replace(one, others=14), 0, progress)  # the images in all are enough
