"""What a run hands back prints as a table and a headline, and tells all but its tensors as JSON."""

import json
import re
from dataclasses import asdict, replace

import pytest
import torch
from networks import Chain, Residual
from networks import images as calibration_images

import ldrf
from ldrf.config import OWN_SETTINGS
from ldrf.recomposition.best import HeldOut
from ldrf.result import Epoch, FinetuneResult, PruneResult, UnitReport, versions
from ldrf.tracing.counting import count_macs, count_parameters


@pytest.fixture
def result(pruned) -> PruneResult:
    return pruned(Residual)


def tuned(result: PruneResult, **changed) -> FinetuneResult:
    epochs = (Epoch(1, 0.5, 0.61, 0.3, 0.01, 2.4), Epoch(2, 0.25, 0.725, 0.15, 0.005, 2.6))
    config = ldrf.FinetuneConfig(epochs=2)
    made = FinetuneResult(
        result.model,
        "accuracy",
        0.5,
        0.725,
        2,
        epochs,
        (1800, 200),
        config,
        versions(),
        result.example,
        result.as_dict(),
    )
    return replace(made, **changed)


def test_the_table_has_a_line_for_every_unit(result, network):
    lines = {line.split()[0]: line.split() for line in str(result).splitlines() if line.strip()}
    ranked = f"rank at {result.config.energy:g}"
    assert " ".join(lines["unit"]) == f"unit neurons kept {ranked} range error cut error solved by"
    assert str(result).startswith(result.headline())
    for told in result.history:
        shown = lines[told.name]
        assert shown[1:4] == [str(told.full), str(told.width), str(told.rank)]
        assert " ".join(shown[4:6]) == f"({told.rank}, {told.full}]" and told.range == (told.rank, told.full)
        assert shown[6:8] == [f"{told.cut_error:.4f}", f"{told.error:.4f}"] and told.way in " ".join(shown[8:])
    assert set(result.full_widths) == {u.name for u in network(Residual).units} <= lines.keys()


def test_a_unit_that_was_not_cut_says_so(prune_known):
    config = ldrf.PruneConfig(solver="none")
    text = str(prune_known(Chain, widths={"conv2": 8}, method="li2017", config=config))
    assert re.search(r"^conv1 .*left as it was", text, re.MULTILINE)
    assert not re.search(r"^conv2 .*left as it was", text, re.MULTILINE)
    assert "held-out images" not in text  # a rival method is not judged


def test_the_headline_counts_the_models_themselves(result, network):
    example = network(Residual).example
    dense, slim = (count_macs(model, example) for model in (network(Residual).model, result.model))
    before, after = (count_parameters(model) for model in (network(Residual).model, result.model))
    assert result.speedup == dense / slim > 1
    wanted = f"{dense / slim:.2f}x fewer MACs ({dense / 1e6:,.1f} M -> {slim / 1e6:,.1f} M), "
    assert result.headline() == wanted + f"{before / after:.2f}x fewer parameters ({before:,} -> {after:,})"
    assert result.headline() in str(result)


@pytest.mark.parametrize(
    ("judged", "words"),
    [
        (HeldOut(0.5, 0.25, 0.125, "reconstructed"), "0.1250 (0.2500 unit by unit, 0.5000 if only cut)"),
        (HeldOut(0.5, 0.25, 0.25, "reconstructed"), "held-out images: 0.2500 (0.5000 if only cut)"),
        (HeldOut(0.5, 0.75, 0.75, "cut"), "Plain cutting did better on held-out images and is what is returned"),
    ],
)
def test_it_says_how_the_whole_network_was_judged(result, judged, words):
    assert words in str(replace(result, held_out=judged))


def test_all_but_the_tensors_goes_through_json_unchanged(result):
    back = json.loads(json.dumps(result.as_dict(), allow_nan=False))
    assert back["widths"] == result.widths and back["speedup"] == result.speedup
    assert tuple(UnitReport(**unit) for unit in back["history"]) == result.history
    assert HeldOut(**back["held_out"]) == result.held_out
    assert ldrf.PruneConfig(**back["config"]) == result.config and back["seed"] == result.seed == result.config.seed
    assert (back["macs"]["dense"], back["macs"]["slim"]) == result.macs
    assert back["images"] == 48 and set(back["versions"]) == {"ldrf", "torch", "python", "device"}


def test_a_rival_method_tells_only_the_settings_it_reads(result):
    rival = replace(result, method="thinet").as_dict()["config"]
    assert set(asdict(result.config)) - set(rival) == set(OWN_SETTINGS)
    assert set(result.as_dict()["config"]) == set(asdict(result.config))


def test_details_hold_five_digits_of_every_number(result):
    details = json.loads(json.dumps(result.details()))
    for name, spectrum in result.spectra.items():
        torch.testing.assert_close(torch.tensor(details["spectra"][name]), spectrum.float(), rtol=1e-4, atol=0)
        torch.testing.assert_close(
            torch.tensor(details["curves"][name]), result.curves[name].float(), rtol=1e-4, atol=1e-30
        )
        assert all(float(f"{x:.5g}") == x for x in details["spectra"][name] + details["curves"][name])
    assert details["curves_of"] == result.curves_of


def test_the_example_is_one_image_of_the_calibration(result):
    (example,) = result.example.args
    assert torch.equal(example, calibration_images(48)[:1])


def test_a_finetuned_result_has_a_line_for_every_epoch(result):
    made = tuned(result)
    assert str(made) == repr(made)
    rows = [line.split() for line in str(made).splitlines() if re.match(r"\s*\d", line)]
    assert rows == [
        ["1", "0.5000", "61.00%", "0.3000", "0.01", "2"],
        ["2", "0.2500", "72.50%", "0.1500", "0.005", "3"],
    ]
    headline = "accuracy 50.00% -> 72.50% on 200 held-out images (at epoch 2 of 2; trained on 1,800)"
    assert made.headline() == headline and str(made).endswith(headline)


def test_a_finetuned_result_says_where_nothing_was_won(result):
    assert "(no epoch was better; trained on" in tuned(result, best_epoch=0, ended=0.5).headline()


def test_a_finetuned_result_tells_the_pruned_one_too(result):
    told = json.loads(json.dumps(tuned(result).as_dict()))
    assert told.pop("finetune")["epochs"][1] == asdict(Epoch(2, 0.25, 0.725, 0.15, 0.005, 2.6))
    assert told == json.loads(json.dumps(result.as_dict()))
