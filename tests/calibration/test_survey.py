"""What one dense pass gathers, and what it leaves out because it would not fit."""

from networks import Chain, images, make

import ldrf


def test_layers_whose_gram_matrix_would_not_fit_have_no_rank_on_data(monkeypatch):
    model, batches = make(Chain), [images(32)]
    whole = ldrf.analyze(model, batches, energy=0.6)
    monkeypatch.setattr("ldrf.calibration.survey.COLUMNS", 30)  # conv1 has 27 weights per output, conv2 108, fc 16
    partial = ldrf.analyze(model, batches, energy=0.6)
    assert partial.ranks == whole.ranks
    assert partial.data_ranks == {**whole.data_ranks, "conv2": None} and None not in whole.data_ranks.values()
    assert "conv2" in str(partial)
