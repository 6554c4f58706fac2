"""A result folder is written all or nothing, comes back bit for bit, and is refused clearly when it is not sound."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false

import hashlib
import json
import os
from dataclasses import replace

import pytest
import torch
from networks import CASES, Case, Chain, Inverted, Residual, Tied, images, make
from safetensors.torch import load_file, save_file
from torch import nn

import ldrf
from ldrf.errors import LdrfError
from ldrf.files.record import RECORD, read_record, sealed
from ldrf.files.result_folders import PAGE
from ldrf.saving.checkpoint import DETAILS, WEIGHTS


@pytest.fixture
def result(pruned):
    return pruned(Chain)


@pytest.fixture
def folder(result, tmp_path):
    return ldrf.save(result, tmp_path / "out")


def same_bits(one: nn.Module, other: nn.Module) -> bool:
    first, second = one.state_dict(), other.state_dict()
    return list(first) == list(second) and all(
        first[n].dtype == second[n].dtype and torch.equal(first[n], second[n]) for n in first
    )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_round_trip_is_bit_exact(pruned, tmp_path, case: Case):
    result, fresh = pruned(case.kind), make(case.kind, seed=7)
    before = {n: t.clone() for n, t in fresh.state_dict().items()}
    loaded = ldrf.load(ldrf.save(result, tmp_path / "a" / "b"), fresh)
    assert type(loaded) is case.kind and same_bits(loaded, result.model)
    assert all(torch.equal(before[n], t) for n, t in fresh.state_dict().items()), "the model given is left alone"
    batch = case.batch(3)
    inputs = batch if isinstance(batch, tuple) else (batch,)
    torch.testing.assert_close(loaded(*inputs), result.model(*inputs), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_round_trip(result, tmp_path, dtype):
    half = replace(result, model=make(Chain).to(dtype))
    loaded = ldrf.load(ldrf.save(half, tmp_path / "out"), make(Chain, 3).to(dtype))
    assert same_bits(loaded, half.model)


def test_channels_last_and_views_can_be_saved(result, tmp_path):
    model = make(Residual).to(memory_format=torch.channels_last)
    model.fc.weight = nn.Parameter(torch.randn(10, 12)[::2])
    loaded = ldrf.load(ldrf.save(replace(result, model=model), tmp_path / "out"), make(Residual, 1))
    assert same_bits(loaded, model)


def test_tied_weights_stay_tied(result, tmp_path):
    model = make(Tied)
    loaded = ldrf.load(ldrf.save(replace(result, model=model), tmp_path / "out"), make(Tied, 5))
    assert loaded.one.weight is loaded.two.weight and same_bits(loaded, model)


def test_depthwise_layers_are_cut_on_loading(pruned, tmp_path):
    loaded = ldrf.load(ldrf.save(pruned(Inverted), tmp_path / "out"), make(Inverted, 2))
    assert loaded.depth.groups == loaded.depth.in_channels == loaded.depth.out_channels == 9
    assert loaded(images(2)).shape == (2, 5)


def test_the_record_holds_what_a_reader_needs(result, folder):
    record = json.loads((folder / RECORD).read_text())
    assert record["speedup"] == result.speedup and record["widths"] == result.widths
    assert record["config"]["solver"] == "closed-form" and record["seed"] == 0
    assert record["metrics"]["macs"] == {"dense": result.macs[0], "slim": result.macs[1]}
    assert record["metrics"]["parameters"]["slim"] == sum(p.numel() for p in result.model.parameters())
    assert set(record["versions"]) >= {"ldrf", "torch", "python"}
    assert sorted(p.name for p in folder.iterdir()) == [RECORD, WEIGHTS, DETAILS]


def test_metrics_and_source_are_recorded(result, tmp_path):
    folder = ldrf.save(result, tmp_path / "out", metrics={"accuracy": {"dense": 0.9}}, source={"model": "vgg9"})
    record = read_record(folder)
    assert record["metrics"]["accuracy"] == {"dense": 0.9} and record["source"] == {"model": "vgg9"}


def test_details_hold_spectra_curves_and_what_is_added(result, tmp_path):
    folder = ldrf.save(result, tmp_path / "out", details={"featuremaps": None})
    found = json.loads((folder / DETAILS).read_text())
    assert found["curves_of"] == "readers" and found["featuremaps"] is None
    assert list(found["spectra"]) == list(result.widths) == list(found["curves"])
    weight = make(Chain).conv2.weight.detach().flatten(1).double()
    assert found["spectra"]["conv2"] == pytest.approx(torch.linalg.svdvals(weight).tolist(), rel=1e-4)
    assert [len(curve) for curve in found["curves"].values()] == [full + 1 for full in result.full_widths.values()]


def test_a_page_about_an_earlier_result_goes_with_it(result, folder):
    (folder / PAGE).write_text("about the earlier one")
    ldrf.save(result, folder, force=True)
    assert sorted(p.name for p in folder.iterdir()) == [RECORD, WEIGHTS, DETAILS]


def test_an_earlier_result_is_replaced_only_by_force(result, pruned, folder):
    with pytest.raises(LdrfError, match=r"holds an earlier result: name another folder, or replace it by force=True"):
        ldrf.save(pruned(Residual), folder)
    assert read_record(folder)["class"] == "Chain"
    ldrf.save(pruned(Residual), folder, force=True)
    assert read_record(folder)["class"] == "Residual"
    assert [p.name for p in folder.parent.iterdir()] == ["out"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Residual, nn.Linear])
def test_another_class_is_refused(folder, kind):
    model = kind(2, 2) if kind is nn.Linear else kind()
    with pytest.raises(LdrfError, match=f"holds a slim Chain. Got a {kind.__name__}"):
        ldrf.load(folder, model)


def test_another_size_of_the_same_class_is_refused(folder):
    with pytest.raises(LdrfError, match=r"tensor 'bn1.bias' must be no larger than \(4,\). Got \(6,\)"):
        ldrf.load(folder, Chain(first=4))


def test_missing_and_additional_tensors_are_named(folder):
    class Other(Chain):
        pass

    Other.__name__ = "Chain"
    larger = Other()
    larger.extra = nn.Linear(2, 2)
    with pytest.raises(LdrfError, match="lacks the tensor 'extra.weight'"):
        ldrf.load(folder, larger)
    smaller = Other()
    del smaller.bn1
    with pytest.raises(LdrfError, match="it has no tensor 'bn1.bias'"):
        ldrf.load(folder, smaller)


@pytest.mark.parametrize("keep", [0, 7, 200, -1])
def test_truncated_weights_are_refused(folder, keep):
    content = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(content[:keep])
    with pytest.raises(LdrfError, match=f"{WEIGHTS}' is damaged"):
        ldrf.load(folder, make(Chain))


def test_a_flipped_bit_is_refused(folder):
    content = bytearray((folder / WEIGHTS).read_bytes())
    content[-5] ^= 1
    (folder / WEIGHTS).write_bytes(content)
    with pytest.raises(LdrfError, match="do not match the checksum"):
        ldrf.load(folder, make(Chain))


def test_other_tensors_under_a_matching_checksum_are_refused(folder):
    tensors = load_file(folder / WEIGHTS)
    tensors["fc.bias"] = torch.zeros(2)
    save_file(tensors, folder / WEIGHTS)
    record = json.loads((folder / RECORD).read_text())
    record["sha256"] = hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest()
    (folder / RECORD).write_text(json.dumps(sealed(record)))
    with pytest.raises(LdrfError, match=f"does not hold the tensors that {RECORD} lists"):
        ldrf.load(folder, make(Chain))


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"format": 1}', '{"format": 1, "shapes": 3}', "\x00\xff", "[" * 100_000]
)
def test_a_damaged_record_is_refused(folder, text):
    (folder / RECORD).write_text(text)
    with pytest.raises(LdrfError, match=f"{RECORD}' is damaged"):
        ldrf.load(folder, make(Chain))


@pytest.mark.parametrize("version", [0, 3, "1", None, True, 1.0])
def test_an_unknown_version_is_refused(folder, version):
    record = json.loads((folder / RECORD).read_text()) | {"format": version}
    (folder / RECORD).write_text(json.dumps(record))
    with pytest.raises(LdrfError, match=f"has format {version!r}, but this ldrf reads formats 1 and 2"):
        ldrf.load(folder, make(Chain))


def test_missing_files_are_named(folder, tmp_path):
    with pytest.raises(LdrfError, match=f"is not a result folder: it has no {RECORD}"):
        ldrf.load(tmp_path / "nowhere", make(Chain))
    (folder / WEIGHTS).unlink()
    with pytest.raises(LdrfError, match=f"is incomplete: it has no readable {WEIGHTS}"):
        ldrf.load(folder, make(Chain))


def test_a_foreign_folder_or_file_is_not_overwritten(result, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.png").write_text("cat")
    with pytest.raises(LdrfError, match="holds something else than an ldrf result"):
        ldrf.save(result, tmp_path / "photos")
    (tmp_path / "file").write_text("text")
    with pytest.raises(LdrfError, match="it is a file, not a folder"):
        ldrf.save(result, tmp_path / "file")
    assert (tmp_path / "photos" / "cat.png").read_text() == "cat" and (tmp_path / "file").read_text() == "text"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "photos"]


@pytest.mark.parametrize(
    "stopped",
    [
        "ldrf.saving.checkpoint.write_through",
        "ldrf.saving.checkpoint.json.dumps",
        "ldrf.files.result_folders.os.rename",
    ],
)
@pytest.mark.parametrize("earlier", [False, True])
def test_an_interrupted_save_leaves_nothing_half_written(result, tmp_path, monkeypatch, stopped, earlier):
    folder = tmp_path / "out"
    if earlier:
        ldrf.save(result, folder, force=True)
        before = {p.name: p.read_bytes() for p in folder.iterdir()}

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(stopped, interrupt)
        with pytest.raises(KeyboardInterrupt):
            ldrf.save(result, folder, force=True)
    assert [p.name for p in tmp_path.iterdir()] == (["out"] if earlier else [])
    if earlier:
        assert {p.name: p.read_bytes() for p in folder.iterdir()} == before


def test_an_interrupt_between_the_two_renames_brings_the_old_result_back(result, tmp_path, monkeypatch):
    folder = ldrf.save(result, tmp_path / "out")
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    calls, rename = [], os.rename

    def second_fails(source, target):
        calls.append(source)
        if len(calls) == 2:
            raise KeyboardInterrupt
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr("ldrf.files.result_folders.os.rename", second_fails)
        with pytest.raises(KeyboardInterrupt):
            ldrf.save(result, folder, force=True)
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_saving_again_keeps_what_else_lies_in_the_folder(result, tmp_path):
    ldrf.save(result, tmp_path / "slim")
    (tmp_path / "slim" / "notes.txt").write_text("mine")
    ldrf.save(result, tmp_path / "slim", force=True)
    assert (tmp_path / "slim" / "notes.txt").read_text() == "mine"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["slim"]


def test_a_loaded_model_is_trained_and_saved_again(folder, tmp_path):
    slim = ldrf.load(folder, make(Chain, 7).train())
    assert not slim.training
    optimiser = torch.optim.SGD(slim.parameters(), 0.1)
    slim.train()(images(4)).square().mean().backward()
    optimiser.step()
    again = ldrf.load(ldrf.save(slim, tmp_path / "trained"), make(Chain, 8))
    assert same_bits(again, slim) and not same_bits(again, ldrf.load(folder, make(Chain)))
    old, new = read_record(folder), read_record(tmp_path / "trained")
    assert new["widths"] == old["widths"] and new["sha256"] != old["sha256"]
    assert new["metrics"] == {name: old["metrics"][name] for name in ("macs", "parameters")}


def test_a_model_that_nothing_is_known_of_is_not_saved(tmp_path):
    with pytest.raises(LdrfError, match="not known how this Chain was pruned: save the result of ldrf.prune"):
        ldrf.save(make(Chain), tmp_path / "out")
