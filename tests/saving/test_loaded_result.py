"""A result comes back as it was saved, and can be looked at, fine-tuned, exported and saved again."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false

import json

import pytest
import torch
from networks import Chain, images, make

import ldrf
from ldrf.errors import LdrfError
from ldrf.files.record import RECORD, read_record, sealed
from ldrf.files.result_folders import DETAILS


@pytest.fixture
def result(pruned):
    return pruned(Chain)


def test_everything_that_was_noted_comes_back(result, tmp_path):
    loaded = ldrf.load_result(ldrf.save(result, tmp_path / "out"), make(Chain, 5).train())
    assert loaded.as_dict() == json.loads(json.dumps(result.as_dict())) and str(loaded) == str(result)
    assert torch.equal(loaded.model(images(3)), result.model(images(3))) and not loaded.model.training
    assert loaded.config == result.config and loaded.history == result.history and loaded.skipped == result.skipped
    assert loaded.example.described() == result.example.described()
    for mine, own in ((loaded.curves, result.curves), (loaded.spectra, result.spectra)):
        assert list(mine) == list(own) and all(torch.allclose(mine[n], own[n].double(), rtol=1e-4) for n in own)


def test_it_is_fine_tuned_by_its_own_teacher_and_saved_again(result, tmp_path):
    loaded = ldrf.load_result(ldrf.save(result, tmp_path / "out"), make(Chain, 5))
    config = ldrf.FinetuneConfig(epochs=1)
    with pytest.raises(LdrfError, match="other weights than the one that was pruned"):
        ldrf.finetune(loaded, make(Chain, 1), [images(8)], config=config)
    tuned = ldrf.save(ldrf.finetune(loaded, make(Chain), [images(8)], config=config), tmp_path / "tuned")
    again = ldrf.load_result(tuned, make(Chain, 5))
    assert again.finetune == read_record(tuned)["finetune"] and again.widths == result.widths
    assert read_record(ldrf.save(again, tmp_path / "twice"))["finetune"] == again.finetune


def test_a_folder_without_its_details_has_no_curves(result, tmp_path):
    folder = ldrf.save(result, tmp_path / "out")
    (folder / DETAILS).unlink()
    loaded = ldrf.load_result(folder, make(Chain))
    assert loaded.curves == loaded.spectra == {} and loaded.speedup == result.speedup


def test_a_folder_that_does_not_say_how_it_was_pruned_is_refused(result, tmp_path):
    folder = ldrf.save(result, tmp_path / "out")
    record = {name: value for name, value in read_record(folder).items() if name != "history"}
    (folder / RECORD).write_text(json.dumps(sealed(record)))
    with pytest.raises(LdrfError, match=r"does not say all of how its model was pruned: use ldrf\.load\."):
        ldrf.load_result(folder, make(Chain))
