"""What one dense pass gathers, and what it leaves out because it would not fit."""

import pytest
import torch
from networks import Chain, Residual, images, make

import ldrf


def test_layers_whose_gram_matrix_would_not_fit_have_no_rank_on_data(monkeypatch):
    model, batches = make(Chain), [images(32)]
    whole = ldrf.analyze(model, batches, energy=0.6)
    monkeypatch.setattr("ldrf.calibration.survey.COLUMNS", 30)  # conv1 has 27 weights per output, conv2 108, fc 16
    found = ldrf.analyze(model, batches, energy=0.6)
    assert found.ranks == whole.ranks
    assert found.data_ranks == {**whole.data_ranks, "conv2": None} and None not in whole.data_ranks.values()
    assert "conv2" in str(found)


@pytest.mark.parametrize("fits", [True, False])
def test_an_output_layer_is_refitted_only_where_its_gram_matrix_fits(monkeypatch, fits: bool):
    model, x = make(Residual), images(128)
    columns = model.fc.in_features  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setattr("ldrf.reconstruction.unit_solver.COLUMNS", columns if fits else columns - 1)  # pyright: ignore
    config = ldrf.PruneConfig(steps=0, joint_steps=0, chunk=16)
    slim = ldrf.prune(model, [x], widths={"block1.conv1": 3}, config=config).model
    assert torch.equal(slim.fc.weight, model.fc.weight) is not fits  # pyright: ignore
