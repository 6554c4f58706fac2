"""``ldrf finetune``: a result folder with the curve, resumed after a kill."""

import json
from pathlib import Path

import ldrf
from ldrf.calibration.indexed_batches import IndexedBatches
from ldrf.cli import main
from ldrf.cli.arguments.finetune import Finetune
from ldrf.cli.finetune import _seen
from ldrf.data.sources import open_data
from ldrf.files.record import sealed

ARCHITECTURE = ("--architecture", "plugin.py:net")


def finetune_args(*more: str) -> list[str]:
    settings = ["--epochs", "2", "--batch", "16", "--rate", "0.003"]
    return ["finetune", "slim", *ARCHITECTURE, "--data", "plugin.py:data", "--out", "tuned", *settings, *more]


def sample_rows(images: int, seed: int) -> tuple[int, ...]:
    batches = open_data("sample", "train").take(images, seed)
    assert isinstance(batches, IndexedBatches)
    return batches.rows


def test_finetune_makes_a_result_folder_with_the_curve(here, capsys):
    assert main(finetune_args("--tensorboard", "tb", "--json")) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [e["epoch"] for e in printed["epochs"]] == [1, 2] and printed["ended"] >= printed["began"]
    before, after = (json.loads(Path(f, "ldrf.json").read_text()) for f in ("slim", "tuned"))
    assert after["widths"] == before["widths"] and after["source"] == before["source"]
    assert after["finetune"]["epochs"] == printed["epochs"] and after["metrics"] == printed["metrics"]
    accuracy = printed["metrics"]["accuracy"]
    assert accuracy["before"] == before["metrics"]["accuracy"]["slim"]
    assert accuracy["dense"] == before["metrics"]["accuracy"]["dense"] and accuracy["images"] == 64
    assert list(Path("tb").iterdir()) and not list(here.glob("*.resume.pt"))
    assert main(["evaluate", "tuned", *ARCHITECTURE, "--data", "plugin.py:data", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["top1"] == accuracy["slim"]


def test_finetune_goes_on_after_a_kill(here, capsys, monkeypatch):
    real, calls = ldrf.finetune, []

    def killed(*given, on_event=None, **named):
        def stop(event, data):
            if event == "epoch":
                raise KeyboardInterrupt

        calls.append(named["resume"])
        return real(*given, **named, on_event=stop)

    with monkeypatch.context() as patch:
        patch.setattr(ldrf, "finetune", killed)
        assert main(finetune_args()) == 130
    assert not Path("tuned").exists() and calls[0].is_file() and calls[0].name == "tuned.resume.pt"
    assert main(finetune_args("--test-images", "0")) == 0
    out = capsys.readouterr().out
    assert "held-out images" in out and "Saved in tuned" in out and "top-1" not in out
    assert not calls[0].exists()
    assert main(finetune_args()) == 1
    assert "or replace it by force=True (--force)." in capsys.readouterr().err


def test_finetune_prints_what_was_won_back(here, capsys):
    assert main(finetune_args("--labels", "1", "--no-augment")) == 0
    out = capsys.readouterr().out
    assert "accuracy" in out and "slim before" in out and "points" in out


def test_finetune_names_what_is_missing(here, capsys):
    assert main(["finetune", "plugin.py:net", "--data", "plugin.py:data", "--out", "tuned"]) == 1
    assert "'plugin.py:net' is not a result folder" in capsys.readouterr().err
    assert main(finetune_args("--weights", "gone.pth")) == 1
    assert "No weights file 'gone.pth'" in capsys.readouterr().err
    assert not Path("tuned").exists()


def test_a_teacher_of_other_weights_is_refused_unless_forced(here, capsys):
    code = Path("plugin.py").read_text().replace("manual_seed(0)", "manual_seed(1)")
    assert code != Path("plugin.py").read_text()
    Path("plugin.py").write_text(code)
    assert main(finetune_args()) == 1
    assert "has other weights than the one that was pruned" in capsys.readouterr().err and not Path("tuned").exists()
    assert main(finetune_args("--force-teacher", "--test-images", "0")) == 0


def test_the_record_tells_which_images_the_prune_saw(tmp_path):
    record = {"source": {"data": "sample"}, "images": 500, "config": {"seed": 3}}
    assert _seen(record, "sample") == sample_rows(500, 3)
    assert _seen(record, "imagefolder:elsewhere") == ()
    for lacking in ({**record, "source": None}, {**record, "images": [1, 2]}, {**record, "config": {}}):
        assert _seen(lacking, "sample") is None


def test_images_that_the_prune_did_not_see_judge(here, capsys, monkeypatch):
    asked = []

    def noted(*_, **named):
        asked.append(named)
        raise KeyboardInterrupt

    record = json.loads(Path("slim/ldrf.json").read_text())
    changed = sealed({**record, "source": {"data": "sample"}, "images": 1500})
    Path("slim/ldrf.json").write_text(json.dumps(changed))
    monkeypatch.setattr(ldrf, "finetune", noted)
    main(["finetune", "slim", *ARCHITECTURE, "--data", "sample", "--out", "tuned", "--test-images", "0"])
    seen = set(sample_rows(1500, record["config"]["seed"]))
    assert len(asked[0]["held_out"].rows) == 200 and not seen & set(asked[0]["held_out"].rows)


def test_a_preset_gives_way_to_what_is_set():
    paper = Finetune("slim", "sample", Path("out"), preset="paper").settings()
    assert paper == ldrf.FinetuneConfig.paper()
    longer = Finetune("slim", "sample", Path("out"), preset="paper", config=ldrf.FinetuneConfig(iterations=20_000))
    assert longer.settings().iterations == 20_000 and longer.settings().optimiser == "sgd"
